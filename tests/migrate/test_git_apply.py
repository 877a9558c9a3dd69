"""`accel-migrate --diff | git apply` gives every case under fixtures/ the bytes that the command itself would write."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from accel_migrate.cli import main

from tests.cases import Case, all_cases


def contents(path: Path) -> dict[str, bytes]:
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return {file.relative_to(path.parent).as_posix(): file.read_bytes() for file in files}


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_git_takes_the_diff_of_a_case(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    before = case.folder / ("before" if case.is_project else "before.py")
    after = case.folder / ("after" if case.is_project else "after.py")
    target = tmp_path / "some folder" / after.name  # named as the result, so that the two can be compared
    target.parent.mkdir()
    (shutil.copytree if case.is_project else shutil.copy)(before, target)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([target.relative_to(tmp_path).as_posix(), "--diff", "--quiet", *case.options])
    sys.stdout.flush()
    diff, said = capfdbinary.readouterr()
    assert ended.value.code == (1 if diff else 0), said.decode()
    if diff:
        subprocess.run(["git", "init", "--quiet"], check=True)
        subprocess.run(["git", "apply", "-"], input=diff, check=True)
    assert contents(target) == contents(after)
