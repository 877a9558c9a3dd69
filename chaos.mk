# Faults at full length: every kill of every way to save (645), 60 flips and 520 edits of every file, 52 loaders resumed in 24
# ways on one process and 16 on two, two programs that save side by side, 20 kills of workers in one training. `make test` has
# a short form. The longest test took 40 minutes on two busy cores, so the time limit of `make test` is not theirs.
.PHONY: chaos

chaos: $(READY)
	CHAOS=1 OMP_NUM_THREADS=1 $(BIN)/pytest -s --timeout 7200 tests/distributed/test_kill_while_saving.py \
		tests/runtime/checkpoint tests/distributed/test_resume.py tests/distributed/test_faults.py \
		tests/distributed/test_sharded_checkpoints.py
