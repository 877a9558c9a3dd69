"""One thing of a library under several names: every rule sees the documented one."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module

import pytest
from accel_migrate.flow.public_names import public
from accel_migrate.plan import Status
from accel_migrate.settings import DEFAULTS

from tests.migrate.rules.verbs import _migrated

SAME = {
    "torch.utils.data.dataloader.DataLoader": "torch.utils.data.DataLoader",
    "torch.utils.data.dataset.random_split": "torch.utils.data.random_split",
    "torch.utils.data.sampler.SubsetRandomSampler": "torch.utils.data.SubsetRandomSampler",
    "torch.utils.data.distributed.DistributedSampler": "torch.utils.data.DistributedSampler",
    "torch.utils.data._utils.collate.default_collate": "torch.utils.data.default_collate",
    "torch.optim.adam.Adam": "torch.optim.Adam",
    "torch.optim.optimizer.Optimizer": "torch.optim.Optimizer",
    "torch.nn.modules.Linear": "torch.nn.Linear",
    "torch.nn.modules.module.Module": "torch.nn.Module",
    "torch.nn.modules.loss.CrossEntropyLoss": "torch.nn.CrossEntropyLoss",
    "torch.nn.parameter.Parameter": "torch.nn.Parameter",
    "torch.nn.parallel.distributed.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.data_parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.utils.clip_grad.clip_grad_norm_": "torch.nn.utils.clip_grad_norm_",
    "torch.cuda.amp.grad_scaler.GradScaler": "torch.cuda.amp.GradScaler",
    "torch.cuda.amp.autocast_mode.autocast": "torch.cuda.amp.autocast",
    "torch.amp.grad_scaler.GradScaler": "torch.amp.GradScaler",
    "torch.amp.autocast_mode.autocast": "torch.amp.autocast",
    "torch.autograd.variable.Variable": "torch.autograd.Variable",
    "torch.autograd.grad_mode.no_grad": "torch.no_grad",
    "torch.autograd.no_grad": "torch.no_grad",
    "torch.distributed.distributed_c10d.all_reduce": "torch.distributed.all_reduce",
    "torch.cuda.random.manual_seed_all": "torch.cuda.manual_seed_all",
    "torch.serialization.save": "torch.save",
    "torch.functional.norm": "torch.norm",
}
OWN = (
    "torch.optim.lr_scheduler.StepLR", "torch.optim.swa_utils.AveragedModel", "torch.nn.functional.relu",
    "torch.nn.utils.rnn.pad_sequence", "torch.nn.modules.batchnorm._BatchNorm", "torch.random.fork_rng",
    "torch.utils.data.datapipes", "torch.nn.parallel.parallel_apply",
)  # fmt: skip
UNSEEN = {
    "torch.random.manual_seed": "torch.manual_seed",  # tests that record a run put their own in its place
    "torchvision.transforms.transforms.RandomCrop": "torchvision.transforms.RandomCrop",
    "torchvision.transforms.v2.RandomCrop": "torchvision.transforms.RandomCrop",
    "torchvision.transforms.transforms": "torchvision.transforms",
    "torchvision.datasets.mnist.MNIST": "torchvision.datasets.MNIST",
    "torch.multiprocessing.spawn.spawn": "torch.multiprocessing.spawn",
    "torch.nn.modules.batchnorm.SyncBatchNorm.convert_sync_batchnorm": "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
    "torchvisions.transforms.transforms.Crop": "torchvisions.transforms.transforms.Crop",
}


@pytest.mark.parametrize(("dotted", "documented"), SAME.items())
def test_both_names_are_one_thing(dotted: str, documented: str) -> None:
    assert public(dotted) == documented
    assert _of_torch(dotted) is _of_torch(documented)


@pytest.mark.parametrize("dotted", [*OWN, *SAME.values()])
def test_a_documented_name_stays(dotted: str) -> None:
    assert public(dotted) == dotted


@pytest.mark.parametrize(("dotted", "documented"), UNSEEN.items())
def test_what_is_not_installed_or_bound_anew(dotted: str, documented: str) -> None:
    assert public(dotted) == documented


def _of_torch(dotted: str) -> object:
    module, _, name = dotted.rpartition(".")
    return getattr(import_module(module), name)


SCRIPT = """
import torch
from torch import nn
{imports}

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
recipe = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToTensor()])
pictures = FakeData(size=64, image_size=(3, 8, 8), transform=recipe)
some, rest = random_split(pictures, [48, 16])
loader = DataLoader(some, batch_size=8, shuffle=True)
manual_seed(3)
net = DataParallel(nn.Sequential(nn.Flatten(), Linear(192, 10), Dropout(0.5)).to(device))
measure = CrossEntropyLoss()
optimizer = Adam(net.parameters(), lr=0.01)
scaler = GradScaler()
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        with autocast():
            loss = measure(net(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
save(net.module.state_dict(), "net.pt")
"""
OTHERWISE = (
    ("torchvision import transforms", "torchvision.transforms import transforms"),
    ("torchvision import transforms", "torchvision.transforms import v2 as transforms"),
    ("torchvision.datasets import FakeData", "torchvision.datasets.fakedata import FakeData"),
    ("torch.utils.data import random_split", "torch.utils.data.dataset import random_split"),
    ("torch.utils.data import DataLoader", "torch.utils.data.dataloader import DataLoader"),
    ("torch import manual_seed", "torch.random import manual_seed"),
    ("torch.nn import DataParallel", "torch.nn.parallel.data_parallel import DataParallel"),
    ("torch.nn import Linear", "torch.nn.modules.linear import Linear"),
    ("torch.nn import Dropout", "torch.nn.modules.dropout import Dropout"),
    ("torch.nn import CrossEntropyLoss", "torch.nn.modules.loss import CrossEntropyLoss"),
    ("torch.optim import Adam", "torch.optim.adam import Adam"),
    ("torch.cuda.amp import GradScaler", "torch.cuda.amp.grad_scaler import GradScaler"),
    ("torch.cuda.amp import autocast", "torch.cuda.amp.autocast_mode import autocast"),
    ("torch.nn.utils import clip_grad_norm_", "torch.nn.utils.clip_grad import clip_grad_norm_"),
    ("torch import save", "torch.serialization import save"),
)
DOCUMENTED = tuple(dict.fromkeys(documented for documented, _ in OTHERWISE))


@pytest.mark.parametrize(("documented", "other"), OTHERWISE)
def test_a_script_becomes_the_same_under_another_name(documented: str, other: str) -> None:
    assert _what_becomes([other if each == documented else each for each in DOCUMENTED]) == _as_documented()


@cache
def _as_documented() -> tuple[list[str], list[tuple[int, str, str]]]:
    return _what_becomes(DOCUMENTED)


def _what_becomes(imports: Iterable[str]) -> tuple[list[str], list[tuple[int, str, str]]]:
    """The migrated lines without the imports, and what is said."""
    result = _migrated(SCRIPT.format(imports="\n".join(f"from {each}" for each in imports)), DEFAULTS)
    assert result.status is Status.MIGRATED, result.reason
    code = [line for line in result.after.decode().splitlines() if not line.startswith(("from ", "import "))]
    return code, [(note.line, note.code, note.message) for note in result.notes]
