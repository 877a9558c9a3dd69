# Two commands for a newcomer: `make demo` and `make test`. Both set up .venv once. `make help` lists the others.
PYTHON ?= python3.11
ifeq ($(shell $(PYTHON) --version 2>/dev/null),)
PYTHON := python3
endif
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEEPSPEED := $(VENV)/.deepspeed
RAY := .venv-ray
XLA := .venv-xla
TORCH ?= 2.6.0
OTHER := .venv-$(notdir $(PYTHON))-torch-$(TORCH)
INSTALL := pip install --quiet --disable-pip-version-check --no-compile

.DEFAULT_GOAL := help
.PHONY: help demo test test-full check pages docs proofs bench test-verify habits test-launchers test-xla test-torch test-python chaos clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 22

demo: $(READY) ## migrate a script, train it before and after, on one process and on two; compare
	$(BIN)/python demo/run.py

test: $(READY) ## ruff, mypy --strict and the tests
	@$(MAKE) --no-print-directory --jobs=2 check $(DEEPSPEED)
	$(BIN)/pytest -n 2 --dist worksteal -m "not full"

test-full: check $(DEEPSPEED) ## make test with what it leaves out: more cases of the same, and whole proofs
	VERIFY_ALL=1 $(BIN)/pytest -n 2 --dist worksteal

check: $(READY) ## ruff and mypy: the fast part
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

pages: $(READY) ## write the pages that are made from tables of the code
	$(BIN)/python docs/make_rules.py
	$(BIN)/python docs/make_support.py
	$(BIN)/python docs/make_differences.py
	$(BIN)/python docs/make_examples.py

docs: pages ## build the documentation site: build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

proofs: $(READY) ## the pages with curves that the gallery links to: trains its scripts
	$(BIN)/python docs/make_proofs.py

bench: $(READY) ## every benchmark, with what it is compared to
	for benchmark in benchmarks/*.py; do echo "== $$benchmark"; $(BIN)/python $$benchmark || exit 1; done

# `make test` has some of them, with six losses each.
test-verify: $(READY) ## every case under fixtures/ trained to its end by --verify, and the long blocks of pages
	VERIFY_ALL=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 tests/end_to_end/test_verify.py tests/end_to_end/test_mutations.py \
		tests/test_docs.py

# `make test` has a dozen of them.
habits: $(READY) ## a thousand scripts made of habits: each is refused, or trains as it did
	HABITS=all $(BIN)/pytest -n 2 tests/habits

# What is missing is a failure here, while `make test` skips it and says so.
test-launchers: $(READY) $(RAY)/.ready ## mpirun, two machines in network namespaces, Ray: installs them, as root
	command -v mpirun && command -v ip || \
		{ apt-get update && apt-get install --yes --no-install-recommends openmpi-bin iproute2; }
	LAUNCHERS_REQUIRED=1 RAY_PYTHON=$(RAY)/bin/python $(BIN)/pytest -v \
		tests/distributed/test_launch_same_losses.py tests/distributed/test_launch_machines.py

# TPUs are not here, so XLA's runtime computes on the CPU.
test-xla: $(XLA)/.ready ## one XLA device, in an environment with its older torch: several gigabytes
	PJRT_DEVICE=CPU $(XLA)/bin/pytest tests/xla

# 2.6.0 is the lowest that pyproject.toml allows.
test-torch: $(OTHER)/.ready ## the runtime's tests on another torch, as TORCH=2.15.0: several gigabytes
	OMP_NUM_THREADS=1 $(OTHER)/bin/pytest -n 2 tests/runtime tests/test_contract.py

test-python: $(OTHER)/.ready ## the codemod's tests and the runtime's, as PYTHON=python3.13 TORCH=2.15.0
	OMP_NUM_THREADS=1 $(OTHER)/bin/pytest -n 2 tests/migrate tests/runtime tests/test_contract.py

# Every kill of every way to save (645), 60 flips and 520 edits of every file, 52 loaders resumed in 24 ways on one process
# and 16 on two, two programs that save side by side, 20 kills of workers in one training. `make test` has a short form. The
# longest test took 40 minutes on two busy cores, so the time limit of `make test` is not theirs.
chaos: $(READY) ## kills and damaged files, at full length
	CHAOS=1 OMP_NUM_THREADS=1 $(BIN)/pytest -s --timeout 7200 tests/distributed/test_kill_while_saving.py \
		tests/runtime/checkpoint tests/distributed/test_resume.py tests/distributed/test_faults.py \
		tests/distributed/test_sharded_checkpoints.py

clean: ## remove the environments, caches and what was built
	rm -rf $(VENV) $(RAY) $(XLA) .venv-*-torch-* .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

# torch comes first and pinned: any other request for it pulls several gigabytes of CUDA. Python compiles what is imported, a
# small part of all that pip would.
$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV), once: this takes a few minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/$(INSTALL) "$$(grep '^torch==' constraints.txt)"
	$(BIN)/$(INSTALL) --constraint constraints.txt --editable ".[runtime,test,docs]"
	touch $@

# DeepSpeed is built from source, and its build imports torch: after everything else, and without an environment of its own.
$(DEEPSPEED): $(READY)
	$(BIN)/$(INSTALL) --no-build-isolation --constraint constraints.txt "$$(grep '^deepspeed==' constraints.txt)"
	touch $@

# Ray on top of the packages of .venv, apart from them: it pins versions that nothing else here needs.
$(RAY)/.ready: $(READY)
	$(BIN)/python -m venv $(RAY)
	$(BIN)/python -c "import site; print('import site; site.addsitedir(%r)' % site.getsitepackages()[0])" \
		> $$($(RAY)/bin/python -c "import site; print(site.getsitepackages()[0])")/base.pth
	$(RAY)/bin/$(INSTALL) --constraint constraints.txt "ray[train]==2.60.*"
	touch $@

# Several gigabytes: the torch on the package index brings CUDA along, and torch_xla wants that one.
$(XLA)/.ready: pyproject.toml constraints-xla.txt
	@echo "Setting up $(XLA), once: this takes about ten minutes."
	$(PYTHON) -m venv $(XLA)
	$(XLA)/bin/$(INSTALL) --constraint constraints-xla.txt torch torch_xla pytest pytest-timeout --editable ".[runtime]"
	touch $@

$(OTHER)/.ready: pyproject.toml
	$(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/$(INSTALL) torch==$(TORCH) --editable ".[runtime,test]"
	touch $@
