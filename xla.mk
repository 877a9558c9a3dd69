# XLA, whose torch is an older one: an environment of its own. TPUs are not here, so its runtime computes on the CPU.
XLA := .venv-xla

.PHONY: test-xla

test-xla: $(XLA)/.ready
	PJRT_DEVICE=CPU $(XLA)/bin/pytest tests/xla

# Several gigabytes: the torch on the package index brings CUDA along, and torch_xla wants that one.
$(XLA)/.ready: pyproject.toml constraints-xla.txt
	@echo "Setting up $(XLA), once: this takes about ten minutes."
	$(PYTHON) -m venv $(XLA)
	$(XLA)/bin/pip install --quiet --disable-pip-version-check --constraint constraints-xla.txt \
		torch torch_xla pytest pytest-timeout --editable ".[runtime]"
	touch $@
