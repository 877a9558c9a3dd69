# Every case under fixtures/ trained to its end by --verify. `make test` has a short form of six losses each.
.PHONY: test-verify

test-verify: $(READY)
	VERIFY_ALL=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 tests/end_to_end/test_verify.py tests/end_to_end/test_mutations.py
