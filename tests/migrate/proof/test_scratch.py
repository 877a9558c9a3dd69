"""Copies to run in: whole, apart from the project, and of a bearable size."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.errors import MigrateError
from accel_migrate.proof import scratch
from accel_migrate.proof.scratch import Project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name in (
        "train.py",
        "data/points.csv",
        ".git/HEAD",
        "env/pyvenv.cfg",
        "env/lib/site.py",
        "pkg/__pycache__/x.pyc",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def test_a_copy_has_the_files_of_the_project_and_the_rewrites(project: Path, tmp_path: Path) -> None:
    Project(project).copy(tmp_path / "copy", {project / "train.py": b"migrated"})
    files = sorted(path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*.*"))
    assert files == ["data/points.csv", "train.py"], "no repository, no environment, no cache"
    assert (tmp_path / "copy" / "train.py").read_text() == "migrated"
    assert (project / "train.py").read_text() == "train.py"


def test_an_empty_folder_is_there_to_be_written_into(project: Path, tmp_path: Path) -> None:
    (project / "runs" / "logs").mkdir(parents=True)
    Project(project).copy(tmp_path / "copy", {})
    assert (tmp_path / "copy" / "runs" / "logs").is_dir()
    assert not (tmp_path / "copy" / "env").exists() and not (tmp_path / "copy" / "pkg" / "__pycache__").exists()


def test_a_link_of_the_project_is_copied_so_that_nothing_is_written_through_it(project: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "big.bin").write_text("kept")
    (project / "linked").symlink_to(tmp_path / "elsewhere")
    Project(project).copy(tmp_path / "copy", {})
    (tmp_path / "copy" / "linked" / "big.bin").write_text("overwritten")
    assert (tmp_path / "elsewhere" / "big.bin").read_text() == "kept"


def test_a_link_to_a_folder_above_does_not_go_on_for_ever(project: Path, tmp_path: Path) -> None:
    (project / "data" / "again").symlink_to(project)
    Project(project).copy(tmp_path / "copy", {})
    assert (tmp_path / "copy" / "train.py").exists()


def test_too_large_a_project_is_refused_and_named_data_is_only_linked(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "LARGEST_COPY", 20)
    (project / "data" / "points.csv").write_text("x" * 100)
    with pytest.raises(MigrateError, match=r"--data data/points\.csv"):
        Project(project).check_size()
    named = Project(project, (project / "data",))
    named.check_size()
    named.copy(tmp_path / "copy", {})
    assert (tmp_path / "copy" / "data").is_symlink()
    before = named.data_state()
    (tmp_path / "copy" / "data" / "points.csv").write_text("y")
    assert named.data_state() != before, "a write through the link is noticed"
