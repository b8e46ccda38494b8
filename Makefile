# Two commands do everything: `make demo` and `make test`. Each makes the environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The tests need a torch; this version has a build without the gigabytes of CUDA.
TORCH := torch==2.13.0

.PHONY: demo test bench clean

demo: $(VENV)/.demo
	$(BIN)/lazygumbel paper --quick --out demo-report

test: $(VENV)/.dev
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

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# The stamps make a second run quick; a changed pyproject.toml installs again.
$(VENV)/.demo: pyproject.toml evaluation/pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable '.[data,plots]' --editable ./evaluation
	touch $@

$(VENV)/.dev: pyproject.toml evaluation/pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable '.[dev]' --editable ./evaluation '$(TORCH)'
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
