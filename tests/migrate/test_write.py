from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from accel_migrate.write import Rewrite, WriteError, write_together, write_whole


def test_replaces_the_bytes_and_keeps_the_mode(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(b"old")
    script.chmod(0o751)
    write_together([Rewrite(script, b"old", b"new")])
    assert script.read_bytes() == b"new"
    assert stat.S_IMODE(script.stat().st_mode) == 0o751
    assert [each.name for each in tmp_path.iterdir()] == ["train.py"]


def test_creates_a_file_as_the_umask_wants(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "new.py", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new.py").stat().st_mode) == 0o640


def test_refuses_a_file_that_changed_since_it_was_read_and_leaves_its_companions(tmp_path: Path) -> None:
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    first.write_bytes(b"old")
    second.write_bytes(b"edited meanwhile")
    with pytest.raises(WriteError, match="changed on disk"):
        write_together([Rewrite(first, b"old", b"new"), Rewrite(second, b"old", b"new")])
    assert (first.read_bytes(), second.read_bytes()) == (b"old", b"edited meanwhile")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.py", "b.py"]


def test_puts_earlier_files_back_when_a_later_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    for file in (first, second):
        file.write_bytes(b"old")
    replace = Path.replace

    def fails_for_the_second(self: Path, target: Path) -> Path:
        if target == second:
            raise OSError(5, "Input/output error")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fails_for_the_second)
    with pytest.raises(WriteError, match="Input/output error"):
        write_together([Rewrite(first, b"old", b"new"), Rewrite(second, b"old", b"new")])
    assert (first.read_bytes(), second.read_bytes()) == (b"old", b"old")


def test_refuses_a_file_that_became_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_bytes(b"old")
    link = tmp_path / "train.py"
    link.symlink_to(outside)
    with pytest.raises(WriteError, match="symbolic link"):
        write_together([Rewrite(link, b"old", b"new")])
    assert outside.read_bytes() == b"old"


def test_a_write_that_is_cut_short_leaves_the_old_file(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(b"old")
    program = textwrap.dedent(
        """
        import resource, sys
        from pathlib import Path
        from accel_migrate.write import Rewrite, WriteError, write_together
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            write_together([Rewrite(Path(sys.argv[1]), b"old", b"x" * 88_000)])
        except WriteError as error:
            print(error)
        """
    )
    assert hasattr(resource, "RLIMIT_FSIZE")
    done = subprocess.run([sys.executable, "-c", program, str(script)], capture_output=True, text=True, check=True)
    assert "File too large" in done.stdout
    assert script.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["train.py"]
