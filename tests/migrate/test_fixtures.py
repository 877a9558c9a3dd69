"""Every case under fixtures/ is migrated to the letter: the rewritten script, and what is said about it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import Case, all_cases

CASES = all_cases()


def migrate(case: Case, folder: Path) -> str:
    """Run the command on a copy of the case; the report it prints."""
    if case.is_project:
        shutil.copytree(case.folder / "before", folder / "project")
        target = "project"
    else:
        shutil.copy(case.folder / "before.py", folder / "train.py")
        target = "train.py"
    done = subprocess.run(
        [sys.executable, "-m", "accel_migrate", target, "-v", "--color", "never", *case.options],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_is_migrated_to_the_letter(case: Case, tmp_path: Path, snapshot) -> None:
    report = migrate(case, tmp_path)
    snapshot.snapshot_dir = case.folder
    snapshot.assert_match(report, "report.txt")
    if case.is_project:
        for path in sorted((tmp_path / "project").rglob("*.py")):
            snapshot.assert_match(path.read_bytes(), f"after/{path.relative_to(tmp_path / 'project').as_posix()}")
    else:
        snapshot.assert_match((tmp_path / "train.py").read_bytes(), "after.py")
    assert (case.folder / "NOTES.md").exists(), f"{case.name} does not say what it is about"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_result_of_a_case_needs_nothing_more(case: Case, tmp_path: Path) -> None:
    target = tmp_path / ("project" if case.is_project else "train.py")
    if case.is_project:
        shutil.copytree(case.folder / "after", target)
    else:
        shutil.copy(case.folder / "after.py", target)
    done = subprocess.run(
        [sys.executable, "-m", "accel_migrate", str(target), "--check", *case.options], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
