# Two commands do everything: `make demo` and `make test`. Each makes the environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The tests need a torch; this version has a build without the gigabytes of CUDA.
TORCH := torch==2.13.0

.PHONY: demo test bench browser clean

demo: $(VENV)/.demo
	$(BIN)/lazygumbel paper --quick --out demo-report
	$(BIN)/python -c "import lazygumbel as lg; from lazygumbel import datasets; \
		lg.LogLinear.build(datasets.glove(), rng=0).save('demo-model')"
	@echo "Explore the word vectors in a browser: $(BIN)/lazygumbel serve demo-model"

test: $(VENV)/.dev browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	cd evaluation && ../$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2 --dist loadfile

# PHOTOS and SENTENCES are .npy files of integer rows, HEAD and HIDDEN of the head of a language model and its hidden
# states; without them the word vectors alone are measured.
bench: $(VENV)/.dev
	$(BIN)/python benchmarks/speed.py --glove $(if $(PHOTOS),--photos $(PHOTOS)) \
		$(if $(SENTENCES),--sentences $(SENTENCES)) $(if $(HEAD),--head $(HEAD) --hidden $(HIDDEN)) \
		--json results/speed.json
	$(BIN)/python benchmarks/learning.py $(if $(PHOTOS),--photos $(PHOTOS))

# The page is tested in a real browser.
browser:
	@if command -v chromium || command -v chromium-browser || command -v google-chrome; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null || \
		echo "make test: chromium could not be installed, so the page will NOT be tested in a browser" >&2; \
	else echo "make test: there is no chromium, so the page will NOT be tested in a browser; install it first" >&2; fi

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# The stamps make a second run quick; a changed pyproject.toml installs again.
$(VENV)/.demo: pyproject.toml evaluation/pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable '.[data,plots,serve]' --editable ./evaluation
	touch $@

$(VENV)/.dev: pyproject.toml evaluation/pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable '.[dev]' --editable ./evaluation '$(TORCH)'
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
