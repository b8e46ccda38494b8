# Two commands do everything: `make demo` and `make test`. Each makes the environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The tests need a torch; this version has a build without the gigabytes of CUDA.
TORCH := torch==2.13.0
# An environment with nothing in it but the wheel, for the tests of the wheel.
ALONE := .venv-wheel
PACKAGED := $(shell find src evaluation/lazygumbel_evaluation -name __pycache__ -prune -o -type f -print) \
	pyproject.toml evaluation/pyproject.toml README.md LICENSE

.PHONY: demo test check docs wheel bench browser clean

demo: $(VENV)/.demo
	$(BIN)/lazygumbel paper --quick --out demo-report
	$(BIN)/python -c "import lazygumbel as lg; from lazygumbel import datasets; \
		lg.LogLinear.build(datasets.glove(), rng=0).save('demo-model')"
	@echo "Explore the word vectors in a browser: $(BIN)/lazygumbel serve demo-model"

# The wheel is installed while linters and types are busy.
test: $(VENV)/.dev browser
	$(MAKE) --jobs 2 --output-sync check $(ALONE)/.installed
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	cd evaluation && ../$(BIN)/lint-imports

# The site: open site/index.html, or `python -m http.server -d site`, where its search works too.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel: dist/.built

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

dist/.built: $(PACKAGED) | $(VENV)/.dev
	rm -rf dist
	$(BIN)/hatchling build --target wheel --directory dist >/dev/null
	cd evaluation && ../$(BIN)/hatchling build --target wheel --directory ../dist >/dev/null
	touch $@

# Not editable, and without what tests, documentation and evaluation need.
$(ALONE)/.installed: dist/.built
	test -x $(ALONE)/bin/python || $(PYTHON) -m venv --without-pip $(ALONE)
	$(BIN)/pip --python $(ALONE)/bin/python install --quiet --no-compile --force-reinstall --no-deps dist/lazygumbel-*.whl
	$(BIN)/pip --python $(ALONE)/bin/python install --quiet --no-compile "$$(ls dist/lazygumbel-*.whl)[data,serve]"
	touch $@

clean:
	rm -rf $(VENV) $(ALONE) build dist site .pytest_cache .ruff_cache .hypothesis
