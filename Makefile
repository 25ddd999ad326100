# Two commands from nothing: `make demo` and `make test`. They need make and Python 3.11 or newer, nothing else.
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -qq --constraint constraints.txt

# Prefect and its libraries send no usage data from here.
export DO_NOT_TRACK := 1

.DEFAULT_GOAL := help
.PHONY: help demo serve-demo test test-long fault-matrix bench docs clean

help:
	@echo "make demo       install into $(VENV), then plan, apply and explain a pass over the sample store"
	@echo "make serve-demo the same as a nightly flow, with Prefect's server, worker and UI, until Ctrl-C"
	@echo "make test       install what the tests need, then lint, type check and test"
	@echo "make test-long  the tests that take minutes"
	@echo "make fault-matrix tries every fault at every step over every store, and writes the table of docs/guarantees.md"
	@echo "make bench      seconds for a plan over 1,000 memories; memfold cluster beside its peers on SIZE=100000 texts"
	@echo "make docs       the pages of docs/ as a site, in ./site; writes the reference again from the code"
	@echo "make clean      remove $(VENV), caches and what the demo wrote"
	@echo "PYTHON=/path/to/python3.12 picks the interpreter that $(VENV) is made with"

demo: $(VENV)/.installed
	@$(BIN)/memfold demo
	@echo
	@echo "memfold is $(BIN)/memfold here; '. $(BIN)/activate' puts it on your PATH"

serve-demo: $(VENV)/.installed
	@$(BIN)/python examples/prefect/serve_demo.py

test: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest -m "not long and not prefect" --numprocesses 2 --dist loadfile
	$(BIN)/pytest -m "not long and prefect"

test-long: $(VENV)/.installed-dev
	$(BIN)/pytest -m long

fault-matrix: $(VENV)/.installed-dev
	$(BIN)/pytest tests/stores/faults/test_fault_matrix.py --write-fault-matrix

SIZE := 100000

bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/plan_1000.py
	$(BIN)/python benchmarks/peer_comparison.py --size $(SIZE)

docs: $(VENV)/.installed-dev
	$(BIN)/python docs/reference/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site demo demo-prefect .mypy_cache .ruff_cache .pytest_cache .hypothesis .prefect dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written when an install is complete, so that the next call starts at once and an interrupted one begins again.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing memfold into $(VENV); the first time takes a minute or two"
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing what the tests need into $(VENV)"
	@$(INSTALL) --editable ".[dev]"
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	@echo "installing what the benchmarks need into $(VENV); each peer gets an environment of its own"
	@$(INSTALL) --editable ".[bench]"
	@touch $@

# The names are tried by running them: a name on the PATH may be a wrapper for a Python that is not there.
$(BIN)/python:
	@for python in $(or $(PYTHON),python3.13 python3.12 python3.11 python3); do \
		if $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
			echo "making $(VENV) with $$($$python --version)"; \
			exec $$python -m venv $(VENV); \
		fi; \
	done; \
	echo "no Python 3.11 or newer with the venv module was found; nothing was installed."; \
	echo "Install one (on Debian and Ubuntu: python3 python3-venv), or name it: make demo PYTHON=/path/to/python3.12"; \
	exit 1
