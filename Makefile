# What a newcomer may want. Everything runs in .venv, which any target makes when it is missing.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make the virtual environment

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'error: Python 3.11 or later is needed: make PYTHON=/path/to/python3.11 setup' >&2; exit 2; }
	@echo 'setting up .venv (about a minute, once)'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: setup ## run the first project on this machine
	@./run_toolbox.py project run training_e2e --presets=smoke

test: setup ## run the tests
	@$(BIN)/python -m pytest -n auto --dist=worksteal

lint: setup ## hold the code against the rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/yamllint --strict .
	@ANSIBLE_LIBRARY="$(CURDIR)/toolbox/ansible_modules" PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/ansible-lint --offline --strict roles

format: setup ## write the code as the formatter does
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: setup ## measure, each against a peer or a floor
	@for file in benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

docs: ## say where to read
	@echo 'README.md, then docs/architecture.md for the reading order of the code'

.PHONY: help setup demo test lint format bench docs
