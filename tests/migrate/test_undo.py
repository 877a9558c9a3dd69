from __future__ import annotations

from pathlib import Path

import pytest

from tests.migrate.conftest import Run

BEFORE = "import torch\nx.cuda()\n"


def test_undo_brings_the_last_run_back(run: Run) -> None:
    for name in ("a.py", "b.py"):
        Path(name).write_text(BEFORE)
    run(".")
    done = run("--undo")
    assert (done.code, done.out) == (0, "Restored 2 of 2 files.\na.py\nb.py\n")
    assert Path("a.py").read_text() == Path("b.py").read_text() == BEFORE
    assert run("--undo").out == "Nothing to undo under this folder.\n"


def test_undo_leaves_and_names_what_was_edited_since(run: Run) -> None:
    for name in ("a.py", "b.py"):
        Path(name).write_text(BEFORE)
    run(".")
    Path("b.py").write_text("# mine\n")
    done = run("--undo")
    assert done.code == 2
    assert done.err == "accel-migrate: b.py: was edited since; left as it is\n"
    assert (Path("a.py").read_text(), Path("b.py").read_text()) == (BEFORE, "# mine\n")


def test_undo_goes_back_run_by_run_and_only_below_this_folder(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("here").mkdir()
    for name in ("here/a.py", "b.py"):
        Path(name).write_text(BEFORE)
    run("here")
    run("b.py")
    monkeypatch.chdir("here")
    assert run("--undo").out == "Restored 1 of 1 files.\na.py\n"
    monkeypatch.chdir("..")
    assert Path("b.py").read_text() != BEFORE
    assert run("--undo").out == "Restored 1 of 1 files.\nb.py\n"


def test_undo_survives_a_journal_that_was_cut_short(run: Run, tmp_path: Path) -> None:
    Path("a.py").write_text(BEFORE)
    run("a.py")
    (journal,) = (tmp_path / "state/accel-migrate/runs").iterdir()
    journal.write_bytes(journal.read_bytes() + b'{"path": "/nowhere')
    assert run("--undo").code == 0
    assert Path("a.py").read_text() == BEFORE


def test_undo_takes_no_path(run: Run) -> None:
    assert "--undo takes no path" in run("--undo", ".").err


def test_runs_that_write_nothing_leave_no_journal(run: Run, tmp_path: Path) -> None:
    Path("a.py").write_text(BEFORE)
    run("--check", "a.py")
    run("--diff", "a.py")
    assert not (tmp_path / "state").exists()
