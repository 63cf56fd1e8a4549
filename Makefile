# Two commands matter: `make sweep` and `make test`. Both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup sweep test check structure asv clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt setuptools wheel torch
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[dev]'
	$(BIN)/asv machine --yes
	touch $(STAMP)

sweep: setup
	$(BIN)/andrea-bench sweep

test: check
	$(BIN)/python -m pytest -q -n 2 --dist loadfile

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

asv: setup
	$(BIN)/asv machine --yes
	$(BIN)/asv run
	$(BIN)/asv publish

clean:
	rm -rf $(VENV) build *.egg-info
