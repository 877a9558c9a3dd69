"""`accel-migrate --diff | git apply` gives every case under fixtures/ the bytes that the command itself would write."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import Case, all_cases


def contents(path: Path) -> dict[str, bytes]:
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return {file.name if file is path else file.relative_to(path).as_posix(): file.read_bytes() for file in files}


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_git_takes_the_diff_of_a_case(case: Case, tmp_path: Path) -> None:
    before = case.folder / ("before" if case.is_project else "before.py")
    after = case.folder / ("after" if case.is_project else "after.py")
    target = tmp_path / "some folder" / after.name  # named as the result, so that the two can be compared
    if case.is_project:
        shutil.copytree(before, target)
    else:
        target.parent.mkdir()
        shutil.copy(before, target)
    place = target.relative_to(tmp_path).as_posix()
    command = [sys.executable, "-m", "accel_migrate", place, "--diff", *case.options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True)
    assert done.returncode == (1 if done.stdout else 0), done.stderr.decode()
    if done.stdout:
        subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
        subprocess.run(["git", "apply", "--check", "-"], cwd=tmp_path, input=done.stdout, check=True)
        subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=done.stdout, check=True)
    assert contents(target) == contents(after)
