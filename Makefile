# Two commands for a newcomer: `make demo` and `make test`. Both set up .venv once.
PYTHON ?= python3.11
ifeq ($(shell $(PYTHON) --version 2>/dev/null),)
PYTHON := python3
endif
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check docs bench clean

demo: $(READY)
	$(BIN)/python demo/run.py

test: check
	$(BIN)/pytest -n 2 --dist worksteal

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/python docs/make_rules.py
	$(BIN)/python docs/make_support.py
	$(BIN)/python docs/make_differences.py

bench: $(READY)
	for benchmark in benchmarks/*.py; do echo "== $$benchmark"; $(BIN)/python $$benchmark || exit 1; done

clean:
	rm -rf $(VENV) .venv-ray .venv-xla .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

# torch comes first and pinned: any other request for it pulls several gigabytes of CUDA.
$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV), once: this takes a few minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[runtime,test]"
	touch $@

# What needs more than this machine or more than minutes: test-verify, test-launchers, test-xla, chaos.
include deepspeed.mk verify.mk launchers.mk xla.mk chaos.mk
