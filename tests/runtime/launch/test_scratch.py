"""The launcher's own folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_runtime.launch import scratch


def test_folders_of_killed_launchers_are_removed_and_those_of_living_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    abandoned = tmp_path / f"{scratch.PREFIX}killed"
    abandoned.mkdir()
    (abandoned / scratch.LOCK).touch()
    (abandoned / "none_abc").mkdir()
    unlocked = tmp_path / f"{scratch.PREFIX}being-made"
    unlocked.mkdir()
    with scratch.scratch_folder() as first:
        assert not abandoned.exists()
        with scratch.scratch_folder() as second:
            assert first.is_dir() and second.is_dir() and first != second
    assert sorted(path.name for path in tmp_path.iterdir()) == [unlocked.name]
