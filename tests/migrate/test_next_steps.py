"""What comes after a run in place: the commands are named, and the notes can be had again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cases import FIXTURES
from tests.migrate.conftest import Run

SCRIPT = "import torch\nx.cuda()\ny.half()\n"


def test_a_run_in_place_names_undo_proof_and_launch(run: Run) -> None:
    Path("a.py").write_text(SCRIPT)
    lines = run("a.py").err.splitlines()
    assert lines[1] == "Next:"
    assert [line.split("#")[0].strip() for line in lines[2:]] == [
        "accel-migrate --undo",
        "accel-migrate --undo && accel-migrate a.py --write-if-proven",
        "accel launch --num-processes 2 a.py",
        "accel-migrate --notes",
    ]


def test_a_file_that_only_defines_is_not_named_as_the_script(run: Run) -> None:
    Path("a.py").write_text('"""Fits."""\nimport torch\ndef fit():\n    x.cuda()\n')
    assert "accel launch --num-processes 2 SCRIPT" in run("a.py").err


def test_nothing_comes_after_a_run_that_wrote_nothing_or_was_not_for_a_person(run: Run) -> None:
    Path("a.py").write_text(SCRIPT)
    Path("b.py").write_text("import torch\n")
    for arguments in (["--check", "a.py"], ["b.py"], ["-o", "c.py", "a.py"], ["-q", "a.py"]):
        assert "Next:" not in run(*arguments).err, arguments


def test_the_other_target_has_its_own_launcher(run: Run) -> None:
    Path("a.py").write_text(SCRIPT)
    assert "accelerate launch --num_processes 2 a.py" in run("--target", "accelerate", "a.py").err


def test_notes_are_printed_again(run: Run) -> None:
    Path("a.py").write_text(SCRIPT)
    first = run("a.py").out
    again = run("--notes")
    assert again.code == 0
    note = "a.py:3:2: AM301 [note] half precision is left alone\n    y.half()\n"
    assert note in first
    assert again.out == f"1 notes of the last run under this folder.\n{note}"


def test_notes_take_no_path_and_know_when_there_are_none(run: Run) -> None:
    assert run("--notes").out == "0 notes of the last run under this folder.\n"
    assert run("--notes", "a.py").code == 2


def test_undo_still_reads_what_an_older_version_kept(run: Run) -> None:
    from accel_migrate.undo import _Entry, state_folder

    Path("a.py").write_text(SCRIPT)
    run("a.py")
    (journal,) = state_folder().glob("*.jsonl")
    journal.write_bytes(journal.read_bytes().replace(b'"notes":', b'"unknown":'))
    assert run("--notes").out.startswith("0 notes")
    assert run("--undo").out == "Restored 1 of 1 files.\na.py\n"
    assert _Entry.__dataclass_fields__["notes"].default == ()


def test_the_answer_comes_first_in_a_pipe_too(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "train_and_evaluate" / "before.py", tmp_path / "train.py")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "accel_migrate", "train.py"]
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    said = subprocess.run(command, cwd=tmp_path, env=environment, text=True, **both).stdout.splitlines()
    assert said[0].startswith("Migrated 1 of 1 file") and "Next:" in said[1:]
