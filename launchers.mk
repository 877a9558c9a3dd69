# The launchers of others: mpirun, two machines in network namespaces, Ray. Needs root for the system's packages.
RAY := .venv-ray

.PHONY: test-launchers

# What is missing is a failure here, while `make test` skips it and says so.
test-launchers: $(READY) $(RAY)/.ready
	command -v mpirun && command -v ip || \
		{ apt-get update && apt-get install --yes --no-install-recommends openmpi-bin iproute2; }
	LAUNCHERS_REQUIRED=1 RAY_PYTHON=$(RAY)/bin/python $(BIN)/pytest -v \
		tests/distributed/test_launch_same_losses.py tests/distributed/test_launch_machines.py

# Ray on top of the packages of .venv, apart from them: it pins versions that nothing else here needs.
$(RAY)/.ready: $(READY)
	$(BIN)/python -m venv $(RAY)
	$(BIN)/python -c "import site; print('import site; site.addsitedir(%r)' % site.getsitepackages()[0])" \
		> $$($(RAY)/bin/python -c "import site; print(site.getsitepackages()[0])")/base.pth
	$(RAY)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt "ray[train]==2.60.*"
	touch $@
