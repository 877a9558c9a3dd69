"""What else is in a folder stays, and everybody may save beside everybody else."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch
from accel_runtime import Accelerator, ProjectConfiguration
from accel_runtime.checkpoint import folders, owners
from accel_runtime.errors import CheckpointError
from torch import nn

from tests.distributed.worlds import in_world


def run(project: Path, **settings):
    accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration(project, **settings))
    model = nn.Linear(3, 2)
    return accelerator, accelerator.prepare(model)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_files_that_no_manifest_lists_stay_through_every_save(tmp_path: Path) -> None:
    accelerator, model = run(tmp_path)
    target = tmp_path / "last"
    (target / "notes").mkdir(parents=True)
    (target / "thesis.tex").write_text("years of work")
    (target / "notes" / "a.txt").write_text("a")
    for _ in range(3):
        with torch.no_grad():
            model.weight += 1
        accelerator.save_state(target)
        (target / "tokenizer.json").write_text("{}")
    assert (target / "thesis.tex").read_text() == "years of work"
    assert (target / "notes" / "a.txt").read_text() == "a"
    assert (target / "tokenizer.json").exists()
    assert names(tmp_path) == {"last"}
    accelerator.load_state(target)


def test_saving_to_the_project_keeps_its_checkpoints(tmp_path: Path) -> None:
    project = tmp_path / "project"
    accelerator, _ = run(project)
    for _ in range(3):
        accelerator.save_state()
    accelerator.save_state(project)
    assert names(project / "checkpoints") == {"checkpoint_0", "checkpoint_1", "checkpoint_2"}
    accelerator.load_state(project)
    accelerator.load_state()


def test_a_file_of_the_user_with_the_name_of_ours_is_not_overwritten(tmp_path: Path) -> None:
    accelerator, _ = run(tmp_path)
    target = tmp_path / "theirs"
    target.mkdir()
    (target / "model.safetensors").write_text("mine")
    with pytest.raises(CheckpointError, match=r"theirs/model\.safetensors was not written by a checkpoint"):
        accelerator.save_state(target)
    assert (target / "model.safetensors").read_text() == "mine"
    assert names(tmp_path) == {"theirs"} and names(target) == {"model.safetensors"}


def test_nor_is_a_folder_of_the_user_with_such_a_name(tmp_path: Path) -> None:
    accelerator, _ = run(tmp_path)
    target = tmp_path / "last"
    (target / "rank_0.json").mkdir(parents=True)
    (target / "rank_0.json" / "mine").write_text("mine")
    with pytest.raises(CheckpointError, match=r"last/rank_0.json.* was not written by a checkpoint"):
        accelerator.save_state(target)
    assert names(tmp_path) == {"last"} and (target / "rank_0.json" / "mine").read_text() == "mine"

    accelerator.register_save_state_pre_hook(lambda *given: written(Path(given[2]) / "extra" / "added"))
    written(tmp_path / "other" / "extra")
    with pytest.raises(CheckpointError, match=r"other/extra was not written by a checkpoint"):
        accelerator.save_state(tmp_path / "other")
    assert names(tmp_path) == {"last", "other"} and (tmp_path / "other" / "extra").read_text() == "mine"


def written(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")


def test_a_folder_that_others_may_not_enter_stays_so(tmp_path: Path) -> None:
    accelerator, _ = run(tmp_path)
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o2775)
    for name, mode in (("private", 0o700), ("shared", 0o2775)):
        for _ in range(2):
            accelerator.save_state(tmp_path / name)
        assert (tmp_path / name).stat().st_mode & 0o7777 == mode


def test_a_file_that_is_made_meanwhile_is_named(tmp_path: Path, monkeypatch) -> None:
    accelerator, _ = run(tmp_path)
    target = tmp_path / "last"
    written(target / "log.txt")

    def discarded(aside: Path, home: Path) -> None:
        (home / "log.txt").write_text("new")
        monkeypatch.undo()
        folders.discard(aside, home)

    monkeypatch.setattr(folders, "discard", discarded)
    with pytest.warns(UserWarning, match=r"last/log.txt was made while a checkpoint was saved there"):
        accelerator.save_state(target)
    assert [path.read_text() for path in sorted(tmp_path.rglob("log.txt"))] == ["mine", "new"]


def test_the_working_folder_is_refused_and_untouched(tmp_path: Path, monkeypatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("years of work")
    monkeypatch.chdir(home)
    accelerator, _ = run(tmp_path)
    with pytest.raises(CheckpointError, match="is the folder that this program works in"):
        accelerator.save_state(".")
    assert names(home) == {"thesis.tex"}
    accelerator.save_state("inside")
    accelerator.load_state("inside")


def test_a_link_stays_a_link_and_a_file_stays_a_file(tmp_path: Path) -> None:
    accelerator, _ = run(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    accelerator.save_state(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real" / "manifest.json").exists()
    accelerator.load_state(tmp_path / "link")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match=r"/file is a file and no folder; it was left as it is"):
        accelerator.save_state(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    assert names(tmp_path) == {"real", "link", "file"}


def test_of_a_linked_checkpoint_the_limit_removes_the_link(tmp_path: Path) -> None:
    accelerator, _ = run(tmp_path, automatic_checkpoint_naming=True, total_limit=1)
    first = Path(accelerator.save_state())
    kept = first.rename(tmp_path / "archive")
    first.symlink_to(kept)
    accelerator.save_state()
    assert names(tmp_path / "checkpoints") == {"checkpoint_1"}
    accelerator.load_state(kept)


@pytest.mark.parametrize("wait", [True, False])
def test_an_old_checkpoint_that_cannot_be_removed_is_named_and_the_new_one_stands(wait: bool, tmp_path: Path) -> None:
    def work():
        accelerator, _ = run(tmp_path, automatic_checkpoint_naming=True, total_limit=1)
        accelerator.save_state()
        told = []
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if accelerator.is_main_process:
                patch.setattr(folders, "_remove", denied)
            accelerator.save_state(wait=wait)
            accelerator._checkpoints.background.settle()
            told += [str(one.message) for one in caught if "total_limit" in str(one.message)]
        return told, Path(accelerator.load_state("latest").folder).name

    first, second = in_world(2, work, patience=120)
    assert first == (
        [f"{tmp_path}/checkpoints/checkpoint_0 is beyond total_limit and stays: Permission denied; remove it by hand"],
        "checkpoint_1",
    )
    assert second == ([], "checkpoint_1")


def denied(folder: Path) -> None:
    raise PermissionError(errno.EACCES, "Permission denied", str(folder))


def test_a_name_that_is_not_utf8_is_refused_when_saving(tmp_path: Path) -> None:
    accelerator, _ = run(tmp_path)
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    with pytest.raises(CheckpointError, match="is not a name in UTF-8"):
        accelerator.save_state(folder)
    assert not names(tmp_path)


def test_latest_of_named_folders_goes_by_when_they_were_saved(tmp_path: Path) -> None:
    accelerator, _ = run(tmp_path)
    home = tmp_path / "checkpoints"
    accelerator.save_state(home / "zz first")
    newest = accelerator.save_state(home / "aa second")
    os.utime(home / "zz first" / "manifest.json", (2e9, 2e9))  # as a copy or an editor does
    assert str(accelerator.load_state("latest").folder) == newest


def test_a_process_that_the_system_hides_is_not_taken_for_ended(monkeypatch) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    monkeypatch.setattr(owners, "PROCESSES", Path("/nowhere"))
    try:
        assert owners._start_of(other.pid) == owners.UNKNOWN
    finally:
        other.communicate()
    assert owners._start_of(other.pid) is None


def test_two_accelerators_and_two_threads_save_side_by_side(tmp_path: Path) -> None:
    runs = [run(tmp_path)[0] for _ in range(3)]
    first = [Path(one.save_state(wait=False)) for one in runs]
    assert len(set(first)) == 3

    def save(one: Accelerator) -> None:
        for _ in range(5):
            one.save_state()

    threads = [threading.Thread(target=save, args=(one,)) for one in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names(tmp_path / "checkpoints") == {f"checkpoint_{number}" for number in range(18)}
    for folder in (tmp_path / "checkpoints").iterdir():
        runs[0].load_state(folder)


SAVES = 40 if "CHAOS" in os.environ else 6


@pytest.mark.parametrize("named", [False, True], ids=["numbered", "one name"])
def test_two_programs_save_side_by_side(named: bool, tmp_path: Path) -> None:
    def saving() -> list[str]:
        accelerator, _ = run(tmp_path)
        return [accelerator.save_state(tmp_path / "both" if named else None) for _ in range(SAVES)]

    threads, told = [], []
    for _ in range(2):
        threads.append(threading.Thread(target=lambda: told.extend(in_world(1, saving)[0])))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 2 * SAVES
    accelerator, _ = run(tmp_path)
    for folder in set(told):
        accelerator.load_state(folder)
    if named:
        assert names(tmp_path) == {"both"}
    else:
        assert len(set(told)) == 2 * SAVES and len(names(tmp_path / "checkpoints")) == 2 * SAVES
    print(f"{2 * SAVES} saves of two programs, {'one name' if named else 'numbered'}: 0 damaged, 0 lost")


def test_a_folder_that_another_process_replaces_meanwhile_is_looked_at_again(tmp_path: Path, monkeypatch) -> None:
    accelerator, _ = run(tmp_path)
    target = Path(accelerator.save_state(tmp_path / "both"))
    plain, replaced = folders._listed, []

    def listed(folder: Path) -> list[str]:
        if folder != target or replaced:
            return plain(folder)
        replaced.append(shutil.copytree(target, tmp_path / "newer"))
        shutil.rmtree(target)
        replaced[0].rename(target)
        return []  # asked while there was no folder of this name

    monkeypatch.setattr(folders, "_listed", listed)
    accelerator.save_state(target)
    assert replaced


def test_what_a_dead_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path: Path, monkeypatch) -> None:
    accelerator, _ = run(tmp_path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    mine = owners.hidden_beside(tmp_path / "x", "writing")
    dead = Path(str(mine).replace(f"-{os.getpid()}-", f"-{ended.pid}-"))
    stranger = Path(str(mine).replace(owners._host(), "0" * 8))
    for folder in (mine, dead, stranger):
        folder.mkdir()
    accelerator.save_state(tmp_path / "y")
    assert names(tmp_path) == {"y", mine.name, stranger.name}
    # Some systems hide the processes of other users: this one is there, and no more is known.
    monkeypatch.setattr(owners, "_start_of", lambda pid: owners.UNKNOWN if pid == os.getpid() else None)
    accelerator.save_state(tmp_path / "y")
    assert names(tmp_path) == {"y", mine.name, stranger.name}
    os.utime(stranger, (1.0, 1.0))  # of another machine, and old
    accelerator.save_state(tmp_path / "y")
    assert names(tmp_path) == {"y", mine.name}
