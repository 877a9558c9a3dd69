"""Saving: while the training goes on, on a full disk, where one may not write."""

import os
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest
import torch
from accel_runtime import Accelerator
from accel_runtime.checkpoint import writing
from accel_runtime.errors import CheckpointError
from torch import nn

from tests.distributed.worlds import in_world


def small_run(project: Path, width: int = 4):
    accelerator = Accelerator(cpu=True, project_dir=project)
    model = nn.Linear(width, width)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 1.0, momentum=0.9))
    return accelerator, model, optimizer


def test_a_save_in_the_background_holds_the_values_of_its_moment(tmp_path: Path, monkeypatch) -> None:
    accelerator, model, _ = small_run(tmp_path)
    changed = threading.Event()
    write = writing._write
    monkeypatch.setattr(writing, "_write", lambda *arguments: changed.wait(60) and write(*arguments))
    then = model.weight.detach().clone()
    folder = Path(accelerator.save_state(wait=False))
    with torch.no_grad():
        model.weight.zero_()
    assert not folder.exists()
    changed.set()
    resumed = accelerator.load_state()
    assert resumed.folder == folder
    assert torch.equal(model.weight, then)


def test_an_error_in_the_background_is_raised_by_the_next_call(tmp_path: Path, monkeypatch) -> None:
    accelerator, _, _ = small_run(tmp_path)
    first = accelerator.save_state()

    def fail(*_):
        raise CheckpointError("the disk is gone")

    with monkeypatch.context() as broken:
        broken.setattr(writing, "_write", fail)
        accelerator.save_state(wait=False)
        with pytest.raises(CheckpointError, match="the disk is gone"):
            accelerator.save_state()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["checkpoint_0"]
    assert str(accelerator.load_state().folder) == first


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 300 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_is_told_before_anything_is_written(small_disk: Path) -> None:
    accelerator, _, _ = small_run(small_disk, width=180)
    kept = accelerator.save_state()
    with pytest.raises(CheckpointError, match=r"checkpoint_1 needs 0\.2 MB and 0\.2 MB are free; make room"):
        accelerator.save_state()
    assert [path.name for path in (small_disk / "checkpoints").iterdir()] == ["checkpoint_0"]
    assert str(accelerator.load_state().folder) == kept


def test_a_disk_that_fills_up_meanwhile_leaves_no_debris(small_disk: Path, monkeypatch) -> None:
    accelerator, _, _ = small_run(small_disk, width=200)
    kept = accelerator.save_state()
    make_staging = writing.make_staging
    monkeypatch.setattr(writing, "make_staging", lambda choose, needed: make_staging(choose, 0))
    with pytest.raises(CheckpointError, match=r"model\.safetensors could not be written: No space left on device"):
        accelerator.save_state()
    assert [path.name for path in (small_disk / "checkpoints").iterdir()] == ["checkpoint_0"]
    assert str(accelerator.load_state().folder) == kept


def test_a_read_only_disk_is_one_sentence(small_disk: Path) -> None:
    accelerator, _, _ = small_run(small_disk)
    accelerator.save_state()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(CheckpointError, match=r"checkpoint_1 cannot be written: Read-only file system at .*; save to"):
        accelerator.save_state()
    accelerator.load_state()


def test_a_file_where_a_folder_is_wanted_is_one_sentence(tmp_path: Path) -> None:
    accelerator, _, _ = small_run(tmp_path)
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(CheckpointError, match=r"checkpoint cannot be written: File exists at .*file; save to a folder"):
        accelerator.save_state(blocked / "checkpoint")


def test_missing_permissions_are_one_sentence() -> None:
    with tempfile.TemporaryDirectory() as name:
        project = Path(name)
        small_run(project)[0].save_state()
        project.chmod(0o755)
        (project / "checkpoints").chmod(0o555)

        def save() -> str:
            accelerator = small_run(project)[0]
            if os.getuid() == 0:
                os.setuid(65534)  # root may write anywhere
            with pytest.raises(CheckpointError) as refusal:
                accelerator.save_state()
            return str(refusal.value)

        (said,) = in_world(1, save)
        assert "checkpoint_1 cannot be written: Permission denied at" in said
