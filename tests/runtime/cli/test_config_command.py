"""`accel config` on a real terminal and without one, and `accel launch` that picks the file up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pexpect
from accel_runtime.launch.network import own_address

ACCEL = [sys.executable, "-m", "accel_runtime"]
DOWN, ENTER = "\x1b[B", "\r"


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "XDG_CONFIG_HOME": str(folder / "home"), "TERM": "xterm"}


def accel(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ACCEL, *arguments],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_session_on_a_terminal_writes_what_launch_then_uses(tmp_path: Path) -> None:
    session = pexpect.spawn(
        ACCEL[0], [*ACCEL[1:], "config"], cwd=tmp_path, env=environment(tmp_path), encoding="utf-8", timeout=60
    )
    for question, keys in [
        ("How many machines", ENTER),
        ("How many processes on each machine", "\x7f2" + ENTER),
        ("spread over the processes", ENTER),
        ("Mixed precision", DOWN + ENTER),
        ("Batches for each optimizer step", "\x7f4" + ENTER),
        ("Where to keep this", ENTER),
    ]:
        session.expect_exact(question)
        session.send(keys)
    session.expect_exact("wrote accel.yaml")
    session.expect(pexpect.EOF)
    lines = (tmp_path / "accel.yaml").read_text().splitlines()
    assert lines[1:] == ["num_processes: 2", "mixed_precision: bf16", "gradient_accumulation_steps: 4"]

    # One write for the whole line: `print` makes several, and two processes share the stream.
    told = "f\"{os.environ['RANK']} {os.environ['ACCEL_MIXED_PRECISION']}\\n\".encode()"
    (tmp_path / "train.py").write_text(f"import os; os.write(1, {told})")
    explained = accel(tmp_path, "launch", "--explain").stdout
    assert any(line.split() == ["num_processes", "2", "accel.yaml"] for line in explained.splitlines())
    launched = accel(tmp_path, "launch", "--show-ranks", "all", "train.py")
    assert sorted(launched.stdout.splitlines()) == ["0 bf16", "1 bf16"], launched.stderr


def test_a_file_for_several_machines_is_the_same_on_each_of_them(tmp_path: Path) -> None:
    session = pexpect.spawn(
        ACCEL[0], [*ACCEL[1:], "config"], cwd=tmp_path, env=environment(tmp_path), encoding="utf-8", timeout=60
    )
    for question, keys in [
        ("How many machines", "\x7f2" + ENTER),
        ("How many processes on each machine", "\x7f4" + ENTER),
        ("Address of the first machine", ENTER),
        ("Port on the first machine", ENTER),
        ("spread over the processes", ENTER),
        ("Mixed precision", ENTER),
        ("Batches for each optimizer step", ENTER),
        ("Where to keep this", ENTER),
    ]:
        session.expect_exact(question)
        session.send(keys)
    session.expect(pexpect.EOF)
    written = (tmp_path / "accel.yaml").read_text()
    assert f"main_process_ip: {own_address()}\n" in written, "the address that others reach this machine by is offered"
    assert "num_processes: 8\n" in written and "machine_rank" not in written


def test_an_interrupted_session_writes_nothing(tmp_path: Path) -> None:
    session = pexpect.spawn(
        ACCEL[0], [*ACCEL[1:], "config"], cwd=tmp_path, env=environment(tmp_path), encoding="utf-8", timeout=60
    )
    session.expect_exact("How many machines")
    session.sendcontrol("c")
    session.expect_exact("nothing was written")
    session.expect(pexpect.EOF)
    assert not (tmp_path / "accel.yaml").exists()


def test_without_a_terminal_it_names_the_flags_and_exits_2(tmp_path: Path) -> None:
    done = accel(tmp_path, "config")
    assert done.returncode == 2 and "accel config --defaults" in done.stderr and done.stdout == ""


def test_set_adds_to_the_file_and_show_names_the_origin(tmp_path: Path) -> None:
    assert accel(tmp_path, "config", "--defaults").returncode == 0
    assert accel(tmp_path, "config", "--set", "num_processes=3").stdout.startswith("wrote accel.yaml\n")
    shown = accel(tmp_path, "config", "--show").stdout
    assert any(line.split() == ["num_processes", "3", "accel.yaml"] for line in shown.splitlines())
    assert accel(tmp_path, "config", "--file", "other.yaml", "--set", "cpu=true").returncode == 0
    assert (tmp_path / "other.yaml").read_text().endswith("cpu: true\n")


def test_the_words_of_accelerate_write_the_defaults(tmp_path: Path) -> None:
    for arguments in (["default"], ["default", "--config_file", "other.yaml"]):
        assert accel(tmp_path, "config", *arguments).returncode == 0
    assert (tmp_path / "accel.yaml").read_text() == (tmp_path / "other.yaml").read_text()
    assert "need no update" in accel(tmp_path, "config", "update").stdout
