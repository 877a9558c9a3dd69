"""A run with one of everything, and a person who may rewrite every file of its checkpoint and fixes the manifest."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from accel_runtime import Accelerator, ProjectConfiguration
from accel_runtime.checkpoint.manifest import read_manifest, write_manifest
from accel_runtime.checkpoint.tensors import digest_of
from accel_runtime.errors import CheckpointError
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader, TensorDataset


class Recorder:
    """A registered object that takes its state over as attributes, as many do."""

    def __init__(self) -> None:
        self.seen, self.best, self.history = 3, float("inf"), [1.5, torch.ones(2)]

    def state_dict(self):
        return dict(self.__dict__)

    def load_state_dict(self, state):
        self.__dict__.update(state)

    def report(self) -> int:
        return self.seen


class Run:
    """After one step and in the middle of an accumulation window."""

    def __init__(self, project: Path, **settings) -> None:
        torch.manual_seed(0)
        config = ProjectConfiguration(project)
        self.accelerator = Accelerator(cpu=True, project_config=config, gradient_accumulation_steps=2, **settings)
        self.accelerator.init_trackers("exp")
        model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        optimizer = torch.optim.AdamW(model.parameters())
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=500)
        loader = DataLoader(TensorDataset(torch.randn(24, 4)), 2, shuffle=True)
        self.model, self.optimizer, self.scheduler, self.loader = self.accelerator.prepare(
            model, optimizer, scheduler, loader
        )
        self.recorder = Recorder()
        self.accelerator.register_for_checkpointing(self.recorder)

    def steps(self, count: int) -> None:
        for number, (inputs,) in enumerate(self.loader, 1):
            self.step(inputs)
            if number == count:
                return

    def saved_within(self, folder: Path) -> None:
        for number, (inputs,) in enumerate(self.loader, 1):
            self.step(inputs)
            if number == 3:
                self.accelerator.save_state(folder)
                return

    def step(self, inputs: torch.Tensor) -> None:
        with self.accelerator.accumulate(self.model):
            self.accelerator.backward(self.model(inputs).square().mean())
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
        self.accelerator.log({"rows": len(inputs)})

    def everything(self) -> list:
        """All that a load may change, to be compared to the bit."""
        kept = [self.model.state_dict(), self.optimizer.state_dict(), self.scheduler.state_dict()]
        kept += [self.recorder.state_dict(), [weight.grad for weight in self.model.parameters()]]
        position = vars(self.loader.loader_progress)
        counts = {name: value for name, value in position.items() if isinstance(value, (int, type(None)))}
        return bits_of([kept, counts, torch.get_rng_state(), random.getstate()])


def bits_of(value):
    """What equals only what is the same to the bit; a printed tensor would hide its last digits, and takes long."""
    if isinstance(value, torch.Tensor):
        local = value.detach().to_local() if isinstance(value, DTensor) else value.detach()
        return str(local.dtype), tuple(local.shape), bytes(local.contiguous().reshape(-1).view(torch.uint8).numpy())
    if isinstance(value, dict):
        return [(repr(key), bits_of(one)) for key, one in value.items()]
    return [bits_of(one) for one in value] if isinstance(value, (list, tuple)) else repr(value)


def fix_manifest(folder: Path) -> None:
    """Makes sizes and digests those of what is there."""
    try:
        manifest = read_manifest(folder)
    except CheckpointError:
        return  # the manifest itself was edited
    files = tuple(
        replace(digest_of(folder / name), name=name) if (folder / name).is_file() else file
        for name, file in zip(manifest.names(), manifest.files)
    )
    write_manifest(folder, replace(manifest, files=files))


def edit(path: Path, change) -> None:
    """Changes the JSON of a file and fixes the manifest."""
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps(change(content) or content))
    fix_manifest(path.parent)


def mutations(path: Path, count: int, chance: random.Random) -> Iterator[bytes]:
    """Contents of the file as somebody would edit it: values, keys and kinds of its JSON, or bytes."""
    content = path.read_bytes()
    for number in range(count):
        if path.suffix == ".json" and number % 8:
            yield _edited_text(content, chance)
        else:
            yield _edited_bytes(content, chance)


KINDS = "tensor array scalar bytes dtype device pickle sparse list tuple set dict Counter OrderedDict defaultdict deque Size"
VALUES = [None, True, 0, -1, 3, 10**18, -(10**18), 10**400, 0.5, 1e308, float("nan"), float("inf"), "", "x", "../../x"]
VALUES += [
    "0",
    "manifest.json",
    "/etc/passwd",
    "__class__",
    "__reduce__",
    "step",
    "load_state_dict",
    "os.system",
    "a" * 300,
]
VALUES += [[], [[]], {}, {"dict": []}, {"dtype": "save"}, {"dtype": "load"}, {"dtype": "_preload_cuda_lib"}]
VALUES += [{"dtype": "float32"}, {"device": "cpu"}, {"tensor": "0"}, {"pickle": "0"}, {"list": []}, {"list": [1, "a"]}]
VALUES += [{"sparse": ["0", "0", [10**9, 10**9], True]}, {"defaultdict": ["eval", []]}, {"defaultdict": ["list", []]}]
VALUES += [{"dict": [["__class__", 1], ["step", {"dtype": "save"}]]}, {"bytes": "00" * 50}, {"deque": [10**18, []]}]


def _edited_text(content: bytes, chance: random.Random) -> bytes:
    node = json.loads(content)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        node = _edited_node(node, chance)
    try:
        return json.dumps(node).encode()
    except ValueError:  # a number with too many digits for this interpreter
        return content.replace(b"0", b"9" * 5000, 1)


def _edited_node(node, chance: random.Random):
    """The tree with one change at a place that is drawn; parents are drawn with the weight of their leaves."""
    if not isinstance(node, (list, dict)) or not node or chance.random() < 0.08:
        return chance.choice(VALUES)
    if isinstance(node, list):
        place = chance.randrange(len(node))
        act = chance.random()
        if act < 0.06:
            return node[:place] + node[place + 1 :]
        if act < 0.14:
            return [*node, chance.choice(VALUES)] if chance.random() < 0.5 else [*node, node[place]]
        if act < 0.2:
            return [*node, [chance.choice(VALUES), chance.choice(VALUES)]]
        return [*node[:place], _edited_node(node[place], chance), *node[place + 1 :]]
    key = chance.choice(list(node))
    act = chance.random()
    if act < 0.08:
        kept = {name: value for name, value in node.items() if name != key}
        return {**kept, chance.choice(KINDS.split()): node[key]}
    if act < 0.12:
        return {**node, chance.choice(KINDS.split()): chance.choice(VALUES)}
    if act < 0.16:
        return {name: value for name, value in node.items() if name != key}
    return {**node, key: _edited_node(node[key], chance)}


def _edited_bytes(content: bytes, chance: random.Random) -> bytes:
    edited = bytearray(content)
    act = chance.random()
    if act < 0.1:
        return bytes(edited[: chance.randrange(len(edited) + 1)])
    if act < 0.2:
        return bytes(edited) + chance.randbytes(chance.randrange(1, 64))
    if act < 0.3:
        edited[:8] = chance.choice((0, 1, 2**31, 2**62, 2**64 - 1, len(content), 10**8)).to_bytes(8, "little")
        return bytes(edited)
    # The header of tensors is at the beginning, and where most can be done.
    reach = len(edited) if chance.random() < 0.3 else min(len(edited), 600)
    for _ in range(chance.choice((1, 2, 8))):
        edited[chance.randrange(reach)] = chance.choice((chance.randrange(256), *b'0123456789"[]{},:-'))
    return bytes(edited)
