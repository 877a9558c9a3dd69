"""`make demo` shows what it promises."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.warm import python

ROOT = Path(__file__).parent.parent


def test_demo_ends_with_equal_losses_and_equal_accuracy() -> None:
    done = subprocess.run([python(), ROOT / "demo" / "run.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "+    accelerator = Accelerator()" in done.stdout
    assert "On one process all 150 losses are equal to the bit." in done.stdout
    (accuracy,) = [line.split("│")[2:5] for line in done.stdout.splitlines() if "│ accuracy" in line]
    assert len({figure.strip() for figure in accuracy}) == 1
