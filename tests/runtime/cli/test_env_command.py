"""`accel env` tells a bug report what it needs, and no secrets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from accel_runtime.cli.env import command, redacted, report
from click.testing import CliRunner

# Stands for an environment in which torch is not installed.
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from accel_runtime.cli import accel
accel.main(["env"])
"""

# And for one in which only the codemod's own dependencies are.
WITHOUT_EXTRA = """
import sys
sys.modules.update(torch=None, msgspec=None, yaml=None, questionary=None, psutil=None)
from accel_runtime.cli import main
main()
"""


def test_it_answers_without_torch(tmp_path: Path) -> None:
    (tmp_path / "accel.yaml").write_text("num_processes: 2\n")
    command = [sys.executable, "-c", WITHOUT_TORCH]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "num_processes: 2 (accel.yaml)" in done.stdout
    assert "import: failed" in done.stdout and "cores: " in done.stdout


def test_without_the_runtime_extra_it_answers_and_the_others_say_what_to_install(tmp_path: Path) -> None:
    def accel(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", WITHOUT_EXTRA, *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    assert "cores: " in accel("env").stdout
    refused = accel("launch", "train.py")
    assert refused.returncode == 2
    assert "msgspec, which is not installed; in a clone of accel-migrate: pip install '.[runtime]'" in refused.stderr


def test_it_says_what_goes_together() -> None:
    lines = CliRunner().invoke(command, ["--support"]).output.splitlines()
    support = dict(line.split(": ", 1) for line in lines)
    assert support["ddp on cpu"].startswith("no, bf16, fp16")
    assert "tested here" in support["ddp on cpu"]
    assert "refused because" in support["ddp on mps"]


def test_it_is_ten_lines_at_most() -> None:
    assert 5 < len(CliRunner().invoke(command, []).output.splitlines()) <= 10


def test_a_broken_config_is_part_of_the_report(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("num_processes: two\n")
    said = report({"ACCEL_CONFIG": str(broken), "XDG_CONFIG_HOME": str(tmp_path)})
    assert "num_processes is 'two'" in said["configuration"]["error"]


def test_secrets_are_hidden_and_only_what_matters_is_shown(tmp_path: Path) -> None:
    environ = {
        "XDG_CONFIG_HOME": str(tmp_path),
        "NCCL_DEBUG": "INFO",
        "SLURM_JWT_TOKEN": "s3cret",
        "HOME": "/home/me",
        "RANK": "0",
    }
    shown = report(environ)["environment"]
    assert shown == {"NCCL_DEBUG": "INFO", "RANK": "0", "SLURM_JWT_TOKEN": "(hidden)"}
    assert redacted("ACCEL_TRACKER", "https://me:pass@host/x") == "https://(hidden)@host/x"
