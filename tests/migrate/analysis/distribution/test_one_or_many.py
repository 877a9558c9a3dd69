"""A script that only ever was one process is told what several mean, though it wraps its model for them."""

from __future__ import annotations

import pytest

from tests.migrate.rules.verbs import migrated, notes

SCRIPT = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

{start}
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
model = DistributedDataParallel(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
average = 0.0
for inputs, labels in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels) - average
    average = 0.9 * average + 0.1 * loss.item()
    loss.backward()
    optimizer.step()
"""
SPAWNED = """
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SIZE = {size}

def work(rank):
    dist.init_process_group("gloo", rank=rank, world_size=SIZE)
    loader = torch.utils.data.DataLoader(data(), batch_size=4)
    model = DistributedDataParallel(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    mp.spawn(work, nprocs=SIZE)
"""
SET = "os.environ['WORLD_SIZE'] = '1'"


def consumes_more(source: str) -> bool:
    """Whether the migrated script is told that a step on N processes consumes N batches (AM801)."""
    migrated(source)
    return any("each step consumes N batches" in note for note in notes(source))


@pytest.mark.parametrize(
    "start",
    [
        "",
        "dist.init_process_group('gloo', rank=0, world_size=1)",
        "dist.init_process_group('gloo', 'tcp://localhost:29500', None, 1, 0)",
        f"{SET}\nos.environ['RANK'] = '0'\ndist.init_process_group('gloo')",
    ],
)
def test_one_process_by_a_constant_is_told_what_several_mean(start: str) -> None:
    assert consumes_more(SCRIPT.format(start=start))


@pytest.mark.parametrize(
    "start",
    [
        "dist.init_process_group('gloo')",
        "dist.init_process_group('gloo', rank=0, world_size=2)",
        "dist.init_process_group('gloo', world_size=int(os.environ['WORLD_SIZE']), rank=int(os.environ['RANK']))",
        f"if 'WORLD_SIZE' not in os.environ:\n    {SET}\ndist.init_process_group('gloo')",
        "os.environ.setdefault('WORLD_SIZE', '1')\ndist.init_process_group('gloo')",
    ],
)
def test_a_size_that_the_launcher_may_say_is_of_several_processes(start: str) -> None:
    assert not consumes_more(SCRIPT.format(start=start))


def test_the_size_of_spawned_processes() -> None:
    assert consumes_more(SPAWNED.format(size="1"))
    assert not consumes_more(SPAWNED.format(size="torch.cuda.device_count()"))
    assert not consumes_more(SPAWNED.format(size="4"))


def test_what_is_kept_between_steps_is_told_as_well() -> None:
    kept = "`average`"
    assert any(
        kept in note for note in notes(SCRIPT.format(start="dist.init_process_group('gloo', world_size=1, rank=0)"))
    )
    assert not any(kept in note for note in notes(SCRIPT.format(start="dist.init_process_group('gloo')")))
