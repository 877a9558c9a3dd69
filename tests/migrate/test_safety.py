"""The promises around a run: the user's code never runs, and no kill leaves half a file."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from tests.migrate.conftest import Run


def test_never_runs_the_users_code(tmp_path: Path) -> None:
    """Not the script, not its neighbours, and not a module that shadows one of ours."""
    for name in ("train.py", "sitecustomize.py", "conftest.py", "json.py", "click.py", "helper.py"):
        (tmp_path / name).write_text(f"import torch\nopen({str(tmp_path / 'ran')!r}, 'w')\nimport helper\n")
    command = [sys.executable, "-m", "accel_migrate"]
    done = subprocess.run([*command, "--check", "."], cwd=tmp_path, capture_output=True)
    assert done.returncode in (0, 1), done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_file_that_is_edited_while_it_is_migrated_is_left(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from accel_migrate import pipeline

    Path("a.py").write_text("import torch\nx.cuda()\n")
    migrate = pipeline.migrate

    def migrate_while_somebody_saves(*arguments, **options):  # type: ignore[no-untyped-def]
        Path("a.py").write_text("import torch\nmine.cuda()\n")
        return migrate(*arguments, **options)

    monkeypatch.setattr(pipeline, "migrate", migrate_while_somebody_saves)
    done = run("a.py")
    assert done.code == 2
    assert "a.py: changed on disk since it was read; nothing was written, run again" in done.err
    assert Path("a.py").read_text() == "import torch\nmine.cuda()\n"


def test_a_project_is_written_whole_or_not_at_all(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from accel_migrate import pipeline

    Path("main.py").write_text("import torch\nimport engine\nx.cuda()\n")
    Path("engine.py").write_text("import torch\nx.cuda()\n")
    migrate = pipeline.migrate

    def migrate_while_somebody_saves(*arguments, **options):  # type: ignore[no-untyped-def]
        Path("main.py").write_text("import torch\n")
        return migrate(*arguments, **options)

    monkeypatch.setattr(pipeline, "migrate", migrate_while_somebody_saves)
    done = run(".")
    assert "engine.py: is left as it was, because main.py changed on disk" in done.err
    assert Path("engine.py").read_text() == "import torch\nx.cuda()\n"


def test_a_folder_that_cannot_be_written_fails_in_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> NoReturn:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    Path("a.py").write_text("import torch\nx.cuda()\n")
    monkeypatch.setattr("tempfile.mkstemp", refuse)
    done = run("a.py")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "a.py: cannot be written (Read-only file system); it is as it was" in done.err


def test_a_journal_that_cannot_be_written_is_told_and_does_not_stop_the_run(run: Run, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    Path("a.py").write_text("import torch\nx.cuda()\n")
    done = run("a.py")
    assert done.code == 0
    assert done.err.startswith("accel-migrate: --undo will not know this run: ") and done.err.count("\n") == 1
    assert Path("a.py").read_text() == "import torch\nx\n"


@pytest.mark.parametrize("kills", [40, pytest.param(200, marks=pytest.mark.full)])
def test_kills_at_random_moments_damage_no_file(kills: int, tmp_path: Path) -> None:
    """A warm process forks in-place runs and kills each one; every file must be the old one or the new one."""
    program = Path(__file__).with_name("kill_runs.py")
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path), str(kills)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    counts = dict(line.split("=") for line in done.stdout.split())
    assert (counts["killed"], counts["damaged"]) == (str(kills), "0")
    # The kills must have hit runs in the middle of their writing, or they prove nothing.
    assert int(counts["midway"]) >= kills // 10
