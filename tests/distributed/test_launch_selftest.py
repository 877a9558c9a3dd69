"""`accel test` checks the set-up that the flags describe, and says what failed and what to try."""

from __future__ import annotations

import subprocess

import pytest
from accel_runtime import Accelerator
from accel_runtime.cli.checks import CHECKS, Check
from accel_runtime.cli.selftest import _run

from tests.warm import python


def test_two_cpu_processes_pass_every_check_in_less_than_a_minute() -> None:
    flags = ["--cpu", "--num-processes", "2", "--mixed-precision", "bf16", "--gradient-accumulation-steps", "4"]
    command = [python(), "-m", "accel_runtime", "test", *flags]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    for check in CHECKS:
        (line,) = (line for line in lines if f" {check.name} " in line)
        assert line.startswith("✓") or "not here: " in line
    assert sum(line.startswith("✓") for line in lines) >= 8
    assert "2 on cpu" in lines[0]
    assert float(last.removeprefix("all is well, in ").removesuffix(" s")) < 60


def test_a_failed_check_says_who_why_and_what_to_try(capsys: pytest.CaptureFixture[str]) -> None:
    def wrong(accelerator: Accelerator) -> str:
        raise AssertionError("gather gave [1] and not [2]")

    with pytest.raises(SystemExit) as ended:
        _run(Check("collectives", wrong, "another network"), Accelerator(cpu=True))
    assert ended.value.code == 1
    failed, hint = capsys.readouterr().out.splitlines()
    assert failed.startswith("FAILED  collectives ") and "rank 0: AssertionError: gather gave [1] and not [2]" in failed
    assert hint.strip() == "try: another network"
