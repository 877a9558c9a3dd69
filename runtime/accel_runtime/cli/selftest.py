"""What every process of `accel test` runs: all checks, one line each on the main process."""

from __future__ import annotations

import os
import sys
import time

from accel_runtime import Accelerator
from accel_runtime.cli.checks import CHECKS, Check, NotHere, plain_accelerator
from accel_runtime.options import FLAGS_VARIABLE

# A check that waits for a rank that is not there must not take the half hour that training may.
TIMEOUT = "60"
TICK = "✓" if "utf" in (sys.stdout.encoding or "").lower() else "ok"


def main() -> None:
    os.environ.setdefault("ACCEL_TIMEOUT", TIMEOUT)
    # The checks choose their own precision and batches; that flags are then not used is no news.
    os.environ.pop(FLAGS_VARIABLE, None)
    started = time.monotonic()
    accelerator = plain_accelerator()
    for check in CHECKS:
        _run(check, accelerator)
    accelerator.print(f"all is well, in {time.monotonic() - started:.1f} s")
    accelerator.end_training()


def _run(check: Check, accelerator: Accelerator) -> None:
    """Run one check; a failure is told by the rank that has it, and ends the test."""
    started = time.monotonic()
    mark = TICK
    try:
        said = check.run(accelerator)
    except NotHere as absence:
        mark, said = "-", f"not here: {absence}"
    except Exception as error:
        print(
            _line("FAILED", check.name, started, f"rank {accelerator.process_index}: {type(error).__name__}: {error}")
        )
        print(f"        try: {check.hint}", flush=True)
        sys.exit(1)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        print(_line(mark, check.name, started, said), flush=True)


def _line(mark: str, name: str, started: float, said: str) -> str:
    return f"{mark:6}  {name:16}  {time.monotonic() - started:5.1f} s  {said}"


if __name__ == "__main__":
    main()
