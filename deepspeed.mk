# DeepSpeed is built from source, and its build imports torch: after everything else, and without an environment of its own.
DEEPSPEED := $(VENV)/.deepspeed

test: $(DEEPSPEED)

$(DEEPSPEED): $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --constraint constraints.txt \
		"$$(grep '^deepspeed==' constraints.txt)"
	touch $@
