"""A person who may rewrite every file of a checkpoint can change numbers, and cannot run code or reach elsewhere."""

from __future__ import annotations

import copy
import os
import random
import resource
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch
from accel_runtime import FullyShardedDataParallelPlugin
from accel_runtime.checkpoint.manifest import read_manifest, write_manifest
from accel_runtime.checkpoint.tensors import Digested, digest_of
from accel_runtime.data.chance import Values
from accel_runtime.data.generators import set_state, state_of
from accel_runtime.errors import CheckpointError
from torch.utils.data import DataLoader, Dataset

from tests.distributed.worlds import in_world
from tests.runtime.checkpoint.attacks import Run, edit, fix_manifest, mutations

MUTATIONS = 520 if "CHAOS" in os.environ else 12  # of every file
MEMORY = 1 << 30  # bytes that a load may take beyond what the process had
PATIENCE = 20.0  # seconds for one load, under the load of other tests


@pytest.fixture
def attacked(tmp_path: Path):
    """A run, and the folder of what another run has saved."""
    folder = tmp_path / "saved"
    Run(tmp_path).saved_within(folder)
    run = Run(tmp_path)
    run.steps(1)
    return run, folder


def refused(run: Run, folder: Path, why: str) -> None:
    before, began = run.everything(), time.monotonic()
    with pytest.raises(CheckpointError, match=why):
        run.accelerator.load_state(folder)
    assert run.everything() == before
    assert time.monotonic() - began < PATIENCE


def scheduler_pairs(content):
    return dict(content["dict"])["state"]["dict"]


def test_a_function_of_torch_does_not_become_a_method(attacked) -> None:
    run, folder = attacked
    path = folder / "scheduler.json"
    original = path.read_bytes()
    for planted in ({"dtype": "save"}, {"dtype": "_preload_cuda_lib"}, {"dtype": "load"}, {"dtype": "nn"}):
        edit(path, lambda node: scheduler_pairs(node).append(["_anneal_func", planted]))  # noqa: B023
        refused(run, folder, r"scheduler\.json does not hold a state as save_state writes it \(KeyError")
        path.write_bytes(original)
    for name in ("_anneal_func", "step", "get_lr", "optimizer", "anything"):
        edit(path, lambda node: scheduler_pairs(node).append([name, 1]))  # noqa: B023
        refused(run, folder, rf"scheduler\.json has '{name}', which the object of this run has not")
        path.write_bytes(original)
    edit(
        path,
        lambda node: [pair.__setitem__(1, "a") for pair in scheduler_pairs(node) if pair[0] == "last_epoch"] and None,
    )
    refused(run, folder, r"scheduler\.json\['last_epoch'\] is a str, and in this run a int")


def test_flags_of_older_schedulers_are_left_out(attacked) -> None:
    run, folder = attacked
    own = set(vars(run.scheduler.scheduler))  # torch 2.6 has the flag itself
    edit(folder / "scheduler.json", lambda node: scheduler_pairs(node).append(["verbose", False]))
    run.accelerator.load_state(folder)
    assert set(vars(run.scheduler.scheduler)) == own


def test_an_optimizer_takes_only_what_it_has(attacked) -> None:
    run, folder = attacked
    path = folder / "optimizer.json"
    original = path.read_bytes()

    def state(node):
        return dict(dict(node["dict"])["state"]["dict"])

    edit(path, lambda node: dict(node["dict"])["state"]["dict"].append(["step", 1]))
    refused(run, folder, r"optimizer\.json has 'step', which the object of this run has not")
    path.write_bytes(original)
    edit(path, lambda node: state(node)["state"]["dict"].append([10**9, {"dict": []}]))
    refused(run, folder, r"optimizer\.json\['state'\] has no weight '1000000000'")
    path.write_bytes(original)
    edit(path, lambda node: state(node)["param_groups"]["list"][0]["dict"].append(["lr", "fast"]))
    refused(run, folder, r"\['param_groups'\]\[0\]\['lr'\] is a str, and in this run a float")


def test_an_object_keeps_its_methods(attacked) -> None:
    run, folder = attacked
    path = folder / "custom_0.json"
    original = path.read_bytes()
    for name in ("report", "load_state_dict", "__class__", "__dict__"):
        edit(path, lambda node: node["dict"].append([name, 1]))  # noqa: B023
        refused(run, folder, rf"custom_0\.json has '{name}', which is a name of the class Recorder")
        path.write_bytes(original)
    edit(path, lambda node: node["dict"].append(["grown", {"list": [1, 2]}]))
    run.accelerator.load_state(folder)
    assert run.recorder.grown == [1, 2] and run.recorder.report() == 3


def test_files_that_are_not_files_are_not_opened(attacked, tmp_path: Path) -> None:
    run, folder = attacked
    secret = tmp_path / "secret"
    original = (folder / "model.safetensors").read_bytes()
    secret.write_bytes(original)
    manifest = read_manifest(folder)
    for name in ("model.safetensors", "rank_0.json", "manifest.json"):
        path = folder / name
        kept = path.read_bytes()
        for plant in (
            lambda: path.symlink_to("/dev/zero"),  # noqa: B023
            lambda: path.symlink_to(secret),  # noqa: B023
            lambda: os.mkfifo(path),  # noqa: B023
            lambda: path.mkdir(),  # noqa: B023
        ):
            path.unlink()
            plant()
            if name != "manifest.json":
                size = 0 if os.path.realpath(path) != str(secret) else len(original)
                digest = digest_of(secret).sha256
                files = tuple(Digested(name, size, digest) if file.name == name else file for file in manifest.files)
                write_manifest(folder, replace(manifest, files=files))
            refused(run, folder, name)
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            path.write_bytes(kept)
        write_manifest(folder, manifest)
    run.accelerator.load_state(folder)


def test_names_sizes_and_counts_are_bounded_before_anything_is_read(attacked, tmp_path: Path) -> None:
    run, folder = attacked
    manifest = read_manifest(folder)
    one = manifest.files[0]
    for name in ("../saved/model.safetensors", "/etc/passwd", "a//b", "./a", "", "manifest.json", one.name, "a\0b"):
        write_manifest(folder, replace(manifest, files=(*manifest.files, replace(one, name=name))))
        refused(run, folder, "is not the name of a file|does not list a checkpoint as save_state writes it")
    for size in (-1, 1 << 62, 1 << 70):
        write_manifest(folder, replace(manifest, files=(replace(one, size=size), *manifest.files[1:])))
        refused(run, folder, "does not list a checkpoint|more than its disk")
    write_manifest(folder, replace(manifest, processes=10**8))
    refused(run, folder, "was saved by 100000000 processes .* lacks rank_1")
    more = tuple(replace(one, name=f"model_{number}.safetensors") for number in range(1, 30))
    for file in more:
        shutil.copy(folder / one.name, folder / file.name)
    write_manifest(folder, replace(manifest, files=(*manifest.files, *more)))
    fix_manifest(folder)
    refused(run, folder, r"holds 30 model\(s\) and this run has 1")
    (folder / "rank_0.json").unlink()
    with (folder / "rank_0.json").open("wb") as sparse:
        sparse.truncate(1 << 28)
    write_manifest(folder, manifest)
    fix_manifest(folder)
    refused(run, folder, "rank_0.json has 268435456 bytes, and text in a checkpoint has at most")


def test_an_odd_rank_file_changes_nothing(attacked) -> None:
    run, folder = attacked
    path = folder / "rank_0.json"
    original = path.read_bytes()
    for name in ("random", "loaders", "blocks", "gradients", "synced"):
        edit(path, lambda node: {"dict": [pair for pair in node["dict"] if pair[0] != name]})  # noqa: B023
        refused(run, folder, "KeyError")
        path.write_bytes(original)
    edit(
        path,
        lambda node: (
            [pair.__setitem__(1, {"list": [{"dict": [["a", 1]]}]}) for pair in node["dict"] if pair[0] == "blocks"]
            and None
        ),
    )
    refused(run, folder, "ValidationError")


def test_a_generator_is_not_sent_out_of_its_numbers(attacked) -> None:
    run, folder = attacked
    path = folder / "rank_0.json"
    original = path.read_bytes()

    def numpy_state(node):
        return dict(dict(node["dict"])["random"]["dict"])["numpy"]["tuple"]

    for place in (-1, 625, 10**9, -(10**9), 1.5):
        edit(path, lambda node: numpy_state(node).__setitem__(2, place))  # noqa: B023
        refused(run, folder, "the state of a generator that no generator has")
        path.write_bytes(original)


@pytest.mark.parametrize("kind", [numpy.random.MT19937, numpy.random.Philox])
def test_nor_one_of_the_script(kind) -> None:
    generator = numpy.random.Generator(kind(1))
    generator.random(3)
    state = state_of(generator)
    set_state(generator, state)
    for place in (-1, 10**6):
        broken = copy.deepcopy(state)
        (broken["state"] if "pos" in broken["state"] else broken)[
            "pos" if "pos" in state["state"] else "buffer_pos"
        ] = place
        with pytest.raises(CheckpointError, match="no generator has"):
            set_state(generator, broken)


def test_nor_one_of_torch() -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(700):
        set_state(generator, state_of(generator))
        torch.rand(1, generator=generator)
    for left, place in ((624, 624), (1, 1), (0, 625)):
        state = state_of(generator)
        state[8:12] = torch.tensor([left], dtype=torch.int32).view(torch.uint8)
        state[16:24] = torch.tensor([place]).view(torch.uint8)
        with pytest.raises(CheckpointError, match="no generator has"):
            set_state(generator, state)


def test_keys_that_collide_do_not_take_hours(attacked) -> None:
    run, folder = attacked
    modulus = sys.hash_info.modulus
    pairs = [[number * modulus, 0] for number in range(60_000)]
    edit(folder / "custom_0.json", lambda node: node["dict"].append(["grown", {"dict": pairs}]))
    refused(run, folder, "keys that were made to collide")


class Images(Dataset):
    """Loads whatever is at its root."""

    def __init__(self) -> None:
        self.root, self.phase, self.index = "/data/images", "warmup", None

    def __len__(self) -> int:
        return 4


def test_a_data_set_is_not_sent_elsewhere() -> None:
    loader = DataLoader(Images())
    Values({}, {"dataset.root": "/data/images", "dataset.phase": "late"}).restore(loader)
    assert loader.dataset.phase == "late"
    for place in ("/planted", "..", "planted\\images", "planted"):
        with pytest.raises(CheckpointError, match=r"has another path for dataset\.root than this run"):
            Values({}, {"dataset.root": place}).restore(loader)
    with pytest.raises(CheckpointError, match=r"has another path for dataset\.index than this run"):
        Values({}, {"dataset.index": "planted.pkl"}).restore(loader)
    assert loader.dataset.root == "/data/images" and loader.dataset.index is None


WHOLE = ("custom_0.json", "custom_0.safetensors", "manifest.json", "model.safetensors", "optimizer.json",
         "optimizer.safetensors", "rank_0.json", "rank_0.safetensors", "scheduler.json")  # fmt: skip
# The others are as in a checkpoint that is whole.
SHARDED = ("gradients.json", "model.json", "shards.json", "shards_0.safetensors")
# What only some runs have.
SETTINGS = {"scaler.json": {"mixed_precision": "fp16"}, "trackers.json": {"log_with": "jsonl"}}


@pytest.mark.parametrize("name", [*WHOLE, *SHARDED, *SETTINGS])
def test_mutations_run_nothing_and_change_nothing(name: str, tmp_path: Path) -> None:
    told = in_world(1, lambda: fuzz(tmp_path, name), patience=3600)[0]
    print(
        f"{name}: {told['edits']} edits, {told['refused']} refused, {told['loaded']} loaded as data, "
        f"{told['slowest']:.2f} s the slowest, {told['memory'] / 1e6:.0f} MB more at the peak"
    )
    assert told["edits"] == MUTATIONS and told["refused"] > MUTATIONS / 2


def fuzz(tmp_path: Path, name: str) -> dict[str, float]:
    sharded = name in SHARDED
    settings = {"fsdp_plugin": FullyShardedDataParallelPlugin()} if sharded else SETTINGS.get(name, {})
    folder = tmp_path / "saved"
    Run(tmp_path / "first", **settings).saved_within(folder)
    run = Run(tmp_path / "second", **settings)
    run.steps(1)
    run.accelerator.load_state(folder)
    run.steps(1)
    chance = random.Random(f"13 {name}")
    names = {path.name for path in folder.iterdir()}
    assert names == set(WHOLE) if name in WHOLE else name in names
    repr(torch.ones(2))  # imports modules when it is first called, as a refusal that names a value may
    watch = Watch(tmp_path, writes=str(tmp_path / "second" / "exp"))
    told = {"edits": 0, "refused": 0, "loaded": 0, "slowest": 0.0}
    started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resource.setrlimit(resource.RLIMIT_DATA, (_data() + MEMORY, resource.RLIM_INFINITY))
    manifest = (folder / "manifest.json").read_bytes()
    path = folder / name
    content = path.read_bytes()
    for edited in mutations(path, MUTATIONS, chance):
        path.write_bytes(edited)
        fix_manifest(folder)
        before, began = run.everything(), time.monotonic()
        watch.on = True
        try:
            run.accelerator.load_state(folder)
            told["loaded"] += 1
            # Other numbers than were saved may well be refused by whom they are for.
            with suppress(Exception):
                run.recorder.report()
                run.scheduler.scheduler.step()
            with suppress(Exception):
                next(iter(run.loader))
        except CheckpointError:
            told["refused"] += 1
            assert run.everything() == before, (name, edited)
        finally:
            watch.on = False
            path.write_bytes(content)
            (folder / "manifest.json").write_bytes(manifest)
        assert not watch.seen, (watch.seen, name, edited)
        told["edits"] += 1
        told["slowest"] = max(told["slowest"], time.monotonic() - began)
    assert told["slowest"] < PATIENCE
    told["memory"] = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - started)
    return told


class Watch:
    """Sees, as the interpreter audits it, whatever runs or is opened outside of the checkpoint."""

    RUNS = ("exec", "subprocess.Popen", "os.system", "os.exec", "os.fork", "pickle.find_class", "ctypes.dlopen",
            "socket.connect", "os.remove", "os.rename", "os.mkdir", "os.chmod", "shutil.rmtree")  # fmt: skip

    def __init__(self, folder: Path, writes: str) -> None:
        self.on, self.seen, self.folder, self.writes = False, [], str(folder), writes
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple) -> None:
        if not self.on:
            return
        if event == "open":
            path, _, flags = arguments
            outside = isinstance(path, (str, bytes)) and not os.fsdecode(path).startswith(
                (self.folder, sys.prefix, sys.base_prefix)
            )
            writes = (
                isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR) and not str(path).startswith(self.writes)
            )
            if writes or (outside and not _of_the_interpreter(os.fsdecode(path))):
                self.seen.append((event, path))
        elif event in self.RUNS and not (event == "exec" and _of_the_interpreter(arguments[0].co_filename)):
            self.seen.append((event, arguments))


def _of_the_interpreter(path: str) -> bool:
    """Modules that torch imports when it first needs them, and what a traceback shows."""
    # From Python 3.13 on the lines of what `ast` parsed are looked for too, under the name that it has there.
    return path == "<unknown>" or path.endswith((".py", ".pyc", ".so", ".pth")) or path.startswith("/proc/")


def _data() -> int:
    """Bytes of memory that this process has for its data."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
    return int(line.split()[1]) * 1024
