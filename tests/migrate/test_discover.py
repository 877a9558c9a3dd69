from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from accel_migrate.discover import discover
from accel_migrate.plan import Status


def names(root: Path, *paths: str, exclude: tuple[str, ...] = ()) -> list[str]:
    found = discover([Path(path) for path in paths], exclude, root)
    return [file.path.relative_to(root).as_posix() for file in found.files]


def make(root: Path, *files: str) -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()


def test_finds_scripts_and_notebooks_sorted_and_once(tmp_path: Path) -> None:
    make(tmp_path, "b.py", "a/c.py", "a/book.ipynb", "a/data.txt")
    assert names(tmp_path, ".", "b.py", "a") == ["a/book.ipynb", "a/c.py", "b.py"]


def test_skips_hidden_folders_caches_and_environments_whatever_their_name(tmp_path: Path) -> None:
    make(tmp_path, ".hidden/a.py", "__pycache__/b.py", "lib/site-packages/c.py", ".d.py", "e.py")
    make(tmp_path, "my env/pyvenv.cfg", "my env/f.py", "conda/conda-meta/x", "conda/g.py")
    assert names(tmp_path, ".") == ["e.py"]


def test_a_named_path_is_never_excluded(tmp_path: Path) -> None:
    make(tmp_path, ".git/HEAD", ".hidden/a.py", "b.py")
    (tmp_path / ".gitignore").write_text("b.py\n")
    assert names(tmp_path, ".hidden/a.py", "b.py", exclude=("*.py",)) == [".hidden/a.py", "b.py"]


def test_respects_gitignore_files_from_the_repository_down_the_innermost_winning(tmp_path: Path) -> None:
    make(tmp_path, ".git/HEAD", "project/train.py", "project/out/a.py", "project/keep/gen_a.py", "project/gen_b.py")
    (tmp_path / ".gitignore").write_text("out/\ngen_*.py\n")
    (tmp_path / "project/keep/.gitignore").write_text("!gen_a.py\n")
    assert names(tmp_path, "project") == ["project/keep/gen_a.py", "project/train.py"]


@pytest.mark.parametrize("line", ["data[3-0].py", "!", "\\"])
def test_a_line_of_a_gitignore_file_that_is_no_pattern_ignores_nothing(tmp_path: Path, line: str) -> None:
    make(tmp_path, ".git/HEAD", "a.py", "b.py")
    (tmp_path / ".gitignore").write_text(f"{line}\nb.py\n")
    assert names(tmp_path, ".") == ["a.py"]


def test_ignores_gitignore_files_above_a_folder_that_is_in_no_repository(tmp_path: Path) -> None:
    make(tmp_path, "project/train.py")
    (tmp_path / ".gitignore").write_text("*.py\n")
    assert names(tmp_path, "project") == ["project/train.py"]


def test_exclude_takes_patterns_of_files_and_folders(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "old/b.py", "new/c_test.py")
    assert names(tmp_path, ".", exclude=("old/", "*_test.py")) == ["a.py"]


def test_does_not_leave_the_tree_through_links(tmp_path: Path) -> None:
    make(tmp_path, "outside/a.py", "project/b.py")
    (tmp_path / "project/link.py").symlink_to(tmp_path / "outside/a.py")
    (tmp_path / "project/folder").symlink_to(tmp_path / "outside")
    (tmp_path / "project/inner.py").symlink_to("b.py")
    found = discover([Path("project")], (), tmp_path)
    assert [file.path.name for file in found.files] == ["b.py"]
    assert [(each.name, each.status) for each in found.problems] == [("project/link.py", Status.SKIPPED)]


def test_a_named_link_is_refused_with_its_target(tmp_path: Path) -> None:
    make(tmp_path, "a.py")
    (tmp_path / "link.py").symlink_to("a.py")
    (problem,) = discover([Path("link.py")], (), tmp_path).problems
    assert problem.status is Status.FAILED
    assert problem.reason == "is a symbolic link to a.py; name that file instead"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_and_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (problem,) = discover([Path("pipe.py")], (), tmp_path).problems
    assert "is not a regular file" in problem.reason


def test_a_folder_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "open/a.py", "closed/b.py")
    scan = os.scandir

    def refuse(path: str) -> Iterator[os.DirEntry[str]]:
        if Path(path).name == "closed":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = discover([Path()], (), tmp_path)
    assert [file.path.name for file in found.files] == ["a.py"]
    assert [(each.name, each.reason) for each in found.problems] == [("closed", "cannot be read: Permission denied")]
