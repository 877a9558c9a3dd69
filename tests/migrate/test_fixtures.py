"""Every case under fixtures/ is migrated to the letter: the rewritten script, and what is said about it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cases import Case, all_cases
from tests.migrate.conftest import Run

CASES = all_cases()


def copied(case: Case, state: str) -> Path:
    """The script or the project of a case, in the folder where the command runs."""
    if case.is_project:
        return Path(shutil.copytree(case.folder / state, "project"))
    return Path(shutil.copy(case.folder / f"{state}.py", "train.py"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_is_migrated_to_the_letter(case: Case, command: Run, snapshot) -> None:
    target = copied(case, "before")
    done = command(str(target), "-v", "--color", "never", *case.options)
    assert done.code == 0, done.out + done.err
    snapshot.snapshot_dir = case.folder
    snapshot.assert_match(done.out, "report.txt")
    if case.is_project:
        for path in sorted(target.rglob("*.py")):
            snapshot.assert_match(path.read_bytes(), f"after/{path.relative_to(target).as_posix()}")
    else:
        snapshot.assert_match(target.read_bytes(), "after.py")
    assert (case.folder / "NOTES.md").exists(), f"{case.name} does not say what it is about"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_result_of_a_case_needs_nothing_more(case: Case, command: Run) -> None:
    done = command(str(copied(case, "after")), "--check", *case.options)
    assert done.code == 0, done.out + done.err
