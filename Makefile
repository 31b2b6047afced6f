# What a newcomer may want. Everything runs in .venv, which any target makes when it is missing.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
# A faster installer does as well: make PIP='uv pip install --quiet --python .venv/bin/python' demo
PIP ?= $(BIN)/python -m pip install --quiet --disable-pip-version-check
STAMP := .venv/.installed
INFERENCE_STAMP := .venv/.installed-inference
NOTEBOOKS_STAMP := .venv/.installed-notebooks
DEV_STAMP := .venv/.installed-dev
# Tests often wait for servers and clusters, so two per processor keep the processors busy.
TEST_WORKERS ?= $(shell expr 2 \* $$(nproc))
# Tests start thousands of interpreters. Without bytecode files, each would compile all modules that it imports.
TESTS = env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -p tests.session_report -n $(TEST_WORKERS) --dist=worksteal
# The helper processes rely on internals of ansible-core. `make test` uses the installed version, which is newer than these.
OLDER_ANSIBLE := 2.17 2.18
ANSIBLE_TESTS := tests/functional/test_ansible_versions.py tests/functional/test_warm_ssh.py::test_modules_are_executed_in_forks
# What an installation reads: the dependencies, and a definition that it compiles.
SOURCES := pyproject.toml hatch_build.py $(wildcard toolbox/features/inference/client/fmaas/generation.proto)

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(DEV_STAMP) ## make .venv with all that tests and linters need

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'error: Python 3.11 or later is needed: make PYTHON=/path/to/python3.11 setup' >&2; exit 2; }
	@$(PYTHON) -m venv .venv

$(STAMP): $(SOURCES) | $(BIN)/python
	@echo 'installing Topgallant into .venv (about a minute, once)'
	@$(PIP) --editable .
	@touch $@

$(INFERENCE_STAMP): $(SOURCES) | $(BIN)/python
	@echo 'installing Topgallant and what the project inference needs into .venv (about a minute, once)'
	@$(PIP) --editable '.[inference]'
	@touch $(STAMP) $@

$(NOTEBOOKS_STAMP): $(SOURCES) | $(BIN)/python
	@echo 'installing Topgallant and what the project notebooks needs into .venv (about a minute, once)'
	@$(PIP) --editable '.[notebooks]'
	@touch $(STAMP) $@

$(DEV_STAMP): $(SOURCES) | $(BIN)/python
	@echo 'installing Topgallant and what develops it into .venv (about two minutes, once)'
	@$(PIP) --editable '.[dev]'
	@touch $(STAMP) $(INFERENCE_STAMP) $(NOTEBOOKS_STAMP) $@

demo: $(STAMP) ## train a matrix of six small models on this machine
	@./run_toolbox.py project run training_e2e --presets=smoke

demo-inference: $(INFERENCE_STAMP) ## serve a small model with three configs, refuse a fourth, judge all answers, and measure a load
	@./run_toolbox.py config validate inference --overrides='{"tests[0].configs[1].dtype_str": bfloat16}'; [ $$? -eq 2 ]
	@echo 'as expected, this config is refused before anything starts; the other three are served now'
	@./run_toolbox.py project run inference --presets=load

demo-notebooks: $(NOTEBOOKS_STAMP) ## test two runtimes on two machines, with a notebook that fails on one of the runtimes
	@./run_toolbox.py project run notebooks; [ $$? -eq 1 ]
	@echo 'exit code 1 is expected: the notebook energy fails with the runtime current, whose NumPy has no trapz any more'

test: $(DEV_STAMP) ## run the tests
	@$(TESTS) tests

test-core: $(DEV_STAMP) ## run the tests of the core, without those of its features
	@$(TESTS) tests --ignore=tests/features --ignore=tests/conformance/test_without_features.py

test-ansible: $(OLDER_ANSIBLE:%=.venv/ansible-core-%/.installed) ## test with older versions of ansible-core
	@for version in $(OLDER_ANSIBLE); do \
		echo "with ansible-core $$version"; \
		PYTHONPATH="$(CURDIR)/.venv/ansible-core-$$version" $(BIN)/python -m pytest --quiet $(ANSIBLE_TESTS) || exit 1; \
	done

test-without-features: $(DEV_STAMP) ## run the tests of the core without each feature, which takes long
	@env -u PYTHONDONTWRITEBYTECODE TOPGALLANT_TEST_WITHOUT=each $(BIN)/python -m pytest \
		--override-ini=faulthandler_timeout=0 tests/conformance/test_without_features.py

.venv/ansible-core-%/.installed: | $(DEV_STAMP)
	@$(PIP) --upgrade --no-deps --target $(@D) 'ansible-core==$*.*'
	@touch $@

lint: lint-style lint-types ## check the code with all linters

lint-types: $(DEV_STAMP)
	@$(BIN)/mypy

lint-style: $(DEV_STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@$(BIN)/yamllint --strict .
	@ANSIBLE_LIBRARY="$(CURDIR)/toolbox/features/kubernetes/library" PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/ansible-lint --offline --strict roles projects/*/roles toolbox/features/*/roles

format: $(DEV_STAMP) ## format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(DEV_STAMP) ## run the benchmarks
	@for file in benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

docs: ## say where to read
	@echo 'README.md, then docs/architecture.md for the rooms of the code'

.PHONY: help setup demo demo-inference demo-notebooks test test-core test-ansible test-without-features lint lint-style lint-types format bench docs
