"""A checkpoint that is not what was saved is refused with the file named, before anything is changed."""

import json
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch
from accel_runtime import Accelerator, ProjectConfiguration
from accel_runtime.checkpoint.manifest import read_manifest, write_manifest
from accel_runtime.checkpoint.tensors import digest_of
from accel_runtime.errors import CheckpointError
from safetensors.torch import load_file, save_file
from torch import nn

FLIPS = 60 if "CHAOS" in os.environ else 6  # per file


class Counter:
    """A registered object."""

    def __init__(self) -> None:
        self.state = {"seen": 3, "best": float("inf"), "history": [1.5, torch.ones(2)], 7: ("a", b"b", None, True)}

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def run(project: Path, width: int = 4, total_limit: int | None = None):
    """An Accelerator with one of everything, after one step."""
    torch.manual_seed(0)
    config = ProjectConfiguration(project, automatic_checkpoint_naming=True, total_limit=total_limit)
    accelerator = Accelerator(cpu=True, project_config=config)
    model = nn.Linear(width, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, scheduler = accelerator.prepare(
        model, optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=50)
    )
    counter = Counter()
    accelerator.register_for_checkpointing(counter)
    step(accelerator, model, optimizer, scheduler)
    return accelerator, model, optimizer, scheduler, counter


def step(accelerator, model, optimizer, scheduler):
    accelerator.backward(model(torch.randn(3, model.in_features)).square().mean())
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()


def everything(parts) -> str:
    _, model, optimizer, scheduler, counter = parts
    kept = [model.state_dict(), optimizer.state_dict(), scheduler.state_dict(), counter.state]
    return repr((kept, torch.get_rng_state().tolist(), random.getstate()))


@pytest.fixture
def saved(tmp_path: Path):
    parts = run(tmp_path)
    return parts, Path(parts[0].save_state())


def refused(parts, folder: Path, name: str) -> None:
    before = everything(parts)
    with pytest.raises(CheckpointError) as refusal:
        parts[0].load_state(folder)
    assert f"{folder / name} " in str(refusal.value)
    assert everything(parts) == before


def test_what_was_saved_comes_back_whole(saved) -> None:
    parts, folder = saved
    then = everything(parts)
    step(*parts[:4])
    parts[4].state = {}
    assert everything(parts) != then
    parts[0].load_state(folder)
    assert everything(parts) == then


def test_every_flipped_bit_is_noticed(saved) -> None:
    parts, folder = saved
    chance = random.Random(1)
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for _ in range(FLIPS):
            place = chance.randrange(len(content) * 8)
            flipped = bytearray(content)
            flipped[place // 8] ^= 1 << place % 8
            path.write_bytes(flipped)
            refused(parts, folder, path.name)
        path.write_bytes(content)
    parts[0].load_state(folder)


def test_every_truncation_deletion_and_exchange_is_noticed(saved, tmp_path: Path) -> None:
    parts, folder = saved
    step(*parts[:4])
    later = Path(parts[0].save_state(tmp_path / "later"))
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for size in (0, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:size])
            refused(parts, folder, path.name)
        path.unlink()
        refused(parts, folder, path.name)
        if (later / path.name).read_bytes() != content and path.name != "manifest.json":
            shutil.copy(later / path.name, path)
            refused(parts, folder, path.name)
        path.write_bytes(content)


def test_newest_is_skipped_aloud_when_it_is_damaged(tmp_path: Path) -> None:
    parts = run(tmp_path)
    first = Path(parts[0].save_state())
    then = everything(parts)
    step(*parts[:4])
    second = Path(parts[0].save_state())
    (second / "optimizer.safetensors").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"checkpoint_1.optimizer\.safetensors has 0 bytes .* Loading .*checkpoint_0"):
        resumed = parts[0].load_state("latest")
    assert resumed.folder == first
    assert everything(parts) == then


def test_numbers_go_on_after_a_restart_and_old_ones_are_pruned(tmp_path: Path) -> None:
    home = tmp_path / "checkpoints"
    for expected in (["checkpoint_0"], ["checkpoint_0", "checkpoint_1"], ["checkpoint_1", "checkpoint_2"]):
        parts = run(tmp_path, total_limit=2)
        parts[0].load_state(missing_ok=True)
        parts[0].save_state()
        assert sorted(path.name for path in home.iterdir()) == expected


def test_no_checkpoint_at_all_is_none_or_an_error(tmp_path: Path) -> None:
    parts = run(tmp_path)
    assert parts[0].load_state("latest", missing_ok=True) is None
    with pytest.raises(CheckpointError, match="there is no checkpoint in"):
        parts[0].load_state("latest")


def test_another_model_is_refused_and_nothing_changes(saved, tmp_path: Path) -> None:
    _, folder = saved
    refusal = r"model.safetensors is not of this Linear: weight was \(2, 4\) and is \(2, 5\); nothing was changed"
    other = run(tmp_path / "other", width=5)
    before = everything(other)
    with pytest.raises(CheckpointError, match=refusal):
        other[0].load_state(folder)
    assert everything(other) == before


def test_models_are_taken_by_plain_load_state_dict(saved) -> None:
    parts, folder = saved
    plain = nn.Linear(4, 2)
    plain.load_state_dict(load_file(folder / "model.safetensors"))
    assert torch.equal(plain.weight, parts[1].weight)


def test_an_object_that_is_no_data_needs_an_explicit_word(saved, tmp_path: Path) -> None:
    parts, _ = saved
    parts[4].state = {"when": Path("x")}
    with pytest.raises(CheckpointError, match=r"the state of custom_0\['when'\] is a PosixPath"):
        parts[0].save_state(tmp_path / "x")
    assert not list(tmp_path.glob("*x*"))
    folder = parts[0].save_state(allow_pickle=True)
    with pytest.raises(CheckpointError, match="holds a pickled object, which could run code"):
        parts[0].load_state(folder)
    parts[0].load_state(folder, allow_pickle=True)
    assert parts[4].state == {"when": Path("x")}


class Payload:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


def test_a_payload_in_any_file_never_runs(saved, tmp_path: Path) -> None:
    parts, folder = saved
    trace = tmp_path / "ran"
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        torch.save(Payload(trace), path)
        refused(parts, folder, path.name)
        fix_manifest(folder)
        refused(parts, folder, path.name)
        path.write_bytes(content)
        fix_manifest(folder)
    assert not trace.exists()


def fix_manifest(folder: Path) -> None:
    """As an attacker would: the digests are made to fit what is there."""
    if (folder / "manifest.json").read_bytes()[:1] == b"{":
        manifest = read_manifest(folder)
        files = tuple(digest_of(folder / name) for name in manifest.names())
        write_manifest(folder, replace(manifest, files=files))


def test_checkpoints_of_the_peer_are_read_and_their_pickles_do_not_run(saved, tmp_path: Path) -> None:
    parts, _ = saved
    _, model, optimizer, scheduler, counter = parts
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    save_file(model.state_dict(), theirs / "model.safetensors")
    torch.save(optimizer.state_dict(), theirs / "optimizer.bin")
    torch.save(scheduler.state_dict(), theirs / "scheduler.bin")
    torch.save(counter.state_dict(), theirs / "custom_checkpoint_0.pkl")
    chance = {"random_state": random.getstate(), "numpy_random_seed": numpy.random.get_state()}
    torch.save({"step": 1, **chance, "torch_manual_seed": torch.get_rng_state()}, theirs / "random_states_0.pkl")
    then = everything(parts)
    step(*parts[:4])
    parts[0].load_state(theirs)
    assert everything(parts) == then
    trace = tmp_path / "ran"
    for path in sorted(theirs.iterdir()):
        content = path.read_bytes()
        torch.save(Payload(trace), path)
        with pytest.raises(CheckpointError, match=path.name):
            parts[0].load_state(theirs)
        assert everything(parts) == then
        path.write_bytes(content)
    assert not trace.exists()


def test_hooks_add_files_that_are_guarded_too(saved) -> None:
    parts, _ = saved

    def hook(models, weights, folder):
        (Path(folder) / "extra").mkdir()
        (Path(folder) / "extra" / "notes.json").write_text(json.dumps({"models": len(models)}))

    handle = parts[0].register_save_state_pre_hook(hook)
    folder = Path(parts[0].save_state())
    handle.remove()
    parts[0].load_state(folder)
    (folder / "extra" / "notes.json").write_text("{}")
    refused(parts, folder, "extra/notes.json")
