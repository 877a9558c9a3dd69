from __future__ import annotations

import time
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


def test_runs_in_another_folder_cost_this_one_neither_undo_nor_notes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel_migrate.undo.RUNS_KEPT", 2)
    for name in ("here/a.py", "there/b.py"):
        Path(name).parent.mkdir()
        Path(name).write_text(BEFORE + "y.half()\n")
    run(".")
    for _ in range(5):
        Path("there/b.py").write_text(BEFORE)
        run("there")
    monkeypatch.chdir("here")
    assert run("--notes").out.startswith("1 notes")
    assert run("--undo").out == "Restored 1 of 1 files.\na.py\n"
    monkeypatch.chdir("../there")
    assert [run("--undo").out.split()[0] for _ in range(3)] == ["Restored", "Restored", "Nothing"]


def test_one_undo_takes_back_all_folders_of_a_run(run: Run) -> None:
    for name in ("one/a.py", "two/b.py"):
        Path(name).parent.mkdir()
        Path(name).write_text(BEFORE)
    run(".")
    assert run("--undo").out == "Restored 2 of 2 files.\none/a.py\ntwo/b.py\n"


def test_runs_of_long_ago_are_forgotten(run: Run, tmp_path: Path) -> None:
    Path("a.py").write_text(BEFORE)
    run("a.py")
    runs = tmp_path / "state/accel-migrate/runs"
    (journal,) = runs.iterdir()
    older = [time.time_ns() - days * 24 * 3600 * 10**9 for days in (89, 91)]
    kept, forgotten = (runs / f"{at:020}-1.jsonl" for at in older)
    for path in (kept, forgotten):
        path.write_bytes(journal.read_bytes())
    Path("b.py").write_text(BEFORE)
    run("b.py")
    assert (kept.exists(), forgotten.exists()) == (True, False)
