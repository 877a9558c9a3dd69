from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from accel_migrate.pool import spread

from tests.migrate.conftest import Run


def double(number: int) -> int:
    if number == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def test_results_come_in_order() -> None:
    assert list(spread(double, range(12), 2, lambda number: -1)) == list(range(0, 24, 2))


def test_a_process_that_dies_costs_one_task() -> None:
    assert list(spread(double, range(30), 2, lambda number: -1)) == [-1 if n == 13 else 2 * n for n in range(30)]


def test_one_job_stays_in_this_process() -> None:
    assert list(spread(lambda _: os.getpid(), [1, 2], 1, lambda _: -1)) == [os.getpid()] * 2


def test_many_files_are_told_in_the_same_order_whatever_the_number_of_jobs(run: Run) -> None:
    for number in range(12):
        Path(f"file{number:02}.py").write_text("import torch\nx.cuda()\n")
    one, two = (run("--diff", "-j", jobs, ".") for jobs in ("1", "2"))
    assert one.raw == two.raw
    assert one.out.count("--- a/") == 12


def test_no_worker_outlives_the_run() -> None:
    script = (
        "import os, signal\nfrom accel_migrate.pool import spread\n\n"
        "def work(task):\n    os.write(1, b'!')\n    signal.pause()\n\n"
        "list(spread(work, range(2), 2, print))\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.read(2) == b"!!"
        run.kill()
        assert run.communicate(timeout=60)[0] == b""  # the pipe ends with the last of its writers
