"""The line at the foot of the terminal is made of what the tracker writes, and stays out of the ranks' way."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from accel_runtime.launch.status import Foot, Metrics, status
from accel_runtime.tracking.jsonl import JsonLinesTracker, tell_launcher

MB = 2**20


def line(step: int, at: float, **values: float) -> dict[str, float]:
    return {"step": step, "time": at, **values}


def test_all_that_is_known_is_shown() -> None:
    shown = status(line(0, 10.0, loss=2.0), line(20, 20.0, loss=0.51234), 100, 12.0, [300 * MB, 290 * MB])
    assert shown == "step 20/100  loss 0.5123  2 steps/s  0:40 left  0:12 running  memory 300, 290 MB"


@pytest.mark.parametrize(
    ("first", "last", "total", "expected"),
    [
        (None, None, None, "1:01:01 running"),
        (line(5, 1.0), line(5, 1.0), None, "step 5  1:01:01 running"),
        (line(0, 1.0), line(10, 2.0), None, "step 10  10 steps/s  1:01:01 running"),
        (line(0, 1.0), line(10, 2.0), 10, "step 10/10  10 steps/s  1:01:01 running"),
        (
            {"step": None, "time": 1.0},
            {"step": None, "time": 2.0, "train/loss": 0.5},
            9,
            "train/loss 0.5  1:01:01 running",
        ),
    ],
)
def test_what_is_not_known_is_left_out(first, last, total, expected) -> None:
    assert status(first, last, total, 3661, []) == expected


def test_metrics_follow_the_trackers_file(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "pointer")
    metrics.update()
    assert metrics.last is None and metrics.total() is None, "there is no tracker yet"
    tracker = JsonLinesTracker("run", tmp_path)
    tell_launcher(tmp_path / "run" / "metrics.jsonl", {"ACCEL_METRICS_POINTER": str(tmp_path / "pointer")})
    tracker.store_init_configuration({"max_steps": 7})
    tracker.log({"loss": 1.0}, step=0)
    tracker.log({"loss": 0.5}, step=1)
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "ti')  # a line that is being written
    metrics.update()
    assert metrics.first is not None and metrics.last is not None
    assert (metrics.first["step"], metrics.last["step"], metrics.total()) == (0, 1, 7)


def test_lines_that_a_resumed_run_takes_back_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    (tmp_path / "pointer").write_text(str(path))
    path.write_text("".join(json.dumps(line(step, step)) + "\n" for step in range(4)))
    metrics = Metrics(tmp_path / "pointer")
    metrics.update()
    path.write_text(json.dumps(line(0, 0)) + "\n")
    metrics.update()
    with path.open("a") as file:
        file.write(json.dumps(line(1, 9)) + "\n")
    metrics.update()
    assert metrics.last is not None and metrics.last["time"] == 9


def test_the_foot_keeps_the_last_row_and_gives_it_back() -> None:
    terminal = io.StringIO()
    foot = Foot(terminal, lambda: os.terminal_size((20, 10)))
    foot.remove()
    assert terminal.getvalue() == "", "nothing was shown, so nothing is taken away"
    foot.show("x" * 50)
    foot.show("y")
    written = terminal.getvalue()
    assert written.count("\x1b[1;9r") == 1, "rows 1 to 9 scroll"
    assert "\x1b[10;1H\x1b[2K" + "x" * 19 + "\x1b8" in written, "cut to the width"
    foot.remove()
    assert "\x1b[r" in terminal.getvalue()


SCRIPT = """
import time
from accel_runtime import Accelerator
accelerator = Accelerator(log_with="jsonl", project_dir="runs")
accelerator.init_trackers("first", config={"max_steps": 40})
for step in range(40):
    accelerator.log({"loss": 1 / (step + 1)}, step=step)
    time.sleep(0.1)
accelerator.wait_for_everyone()
accelerator.end_training()
"""


def test_a_launch_on_a_terminal_shows_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "accel_runtime", "launch", "--cpu", "--num-processes", "2", "train.py"]
    ours, theirs = pty.openpty()
    environ = {**os.environ, "TERM": "xterm", "LINES": "24", "COLUMNS": "120"}
    process = subprocess.Popen(command, cwd=tmp_path, env=environ, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen, deadline = b"", time.monotonic() + 120
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 1)[0]:
            try:
                seen += os.read(ours, 65536)
            except OSError:
                break  # the last writer has closed it
        elif process.poll() is not None:
            break
    assert process.wait(timeout=30) == 0, seen.decode()
    text = seen.decode()
    assert "/40  loss " in text and " steps/s  " in text and " left  " in text, text
    assert text.count(" MB") and ", " in text.split("memory ")[1].split(" MB")[0], "one number for each rank"
    assert text.rstrip().endswith("\x1b8"), "the row was given back"
