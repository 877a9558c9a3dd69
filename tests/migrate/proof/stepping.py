"""One training step on a batch and on its shards, traced in this process; the exchange between ranks is a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from accel_migrate.proof.recorder.gradients import _projection
from accel_migrate.proof.recorder.step_trace import StepTrace
from accel_migrate.proof.step.conclude import StepAnswer, conclude
from accel_migrate.proof.step.graph import Steps, steps_of
from torch import Tensor, nn

ROWS = 16
WORLDS = (2, 4)

Gradients = list[Tensor]


@dataclass(frozen=True)
class Here:
    """Where a loss is computed: how many processes there are, and how many rows the batch of all of them has."""

    world: int
    rank: int
    batch_size: int = ROWS


LossOf = Callable[[nn.Module, Tensor, Tensor, Here], Tensor]
Exchange = Callable[[list[Gradients]], list[Gradients]]


def mean(ranks: list[Gradients]) -> list[Gradients]:
    """What DistributedDataParallel does."""
    return [[sum(each) / len(ranks) for each in zip(*ranks)] for _ in ranks]  # type: ignore[misc]


class Journal:
    """As much of the recorder's journal as a trace needs."""

    def __init__(self, folder: Path, rank: int) -> None:
        import os

        self.folder, self.rank, self.process = folder, rank, os.getpid()

    def place(self, direct: bool = False) -> tuple[str, int]:
        return "train.py", 1


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, 6, generator=generator)
    return x, torch.randint(0, 4, (ROWS,), generator=generator)


def traced(
    loss_of: LossOf, world: int, make: Callable[[], nn.Module] = model, exchange: Exchange = mean, whole: bool = False
) -> list[Steps]:
    """What each rank records of its first step; with `whole`, none has a shard."""
    with TemporaryDirectory() as folder:
        traces = [_begun(loss_of, Here(world, rank), make, Path(folder), whole) for rank in range(world)]
        local = [[parameter.grad.clone() for parameter in trace.parameters()] for trace, _ in traces]
        for (trace, loss), own, shared in zip(traces, local, exchange(local)):
            rows = [
                [index, 0.0, _projection(torch, one), _projection(torch, two), float(two.norm())]
                for index, (one, two) in enumerate(zip(own, shared))
            ]
            trace.note("backward", values=[loss], directed=False, gradients=rows)
            trace.took(trace.optimizers[0])
            trace.finish()
        return list(steps_of(Path(folder)))


def _begun(
    loss_of: LossOf, here: Here, make: Callable[[], nn.Module], folder: Path, whole: bool
) -> tuple[StepTrace, int]:
    net, (x, y) = make(), data()
    trace = StepTrace(torch, Journal(folder, here.rank), here.world)  # type: ignore[arg-type]
    trace.optimizers.append(torch.optim.SGD(net.parameters(), lr=0.1))
    if not whole:
        x, y = (each.chunk(here.world)[here.rank].clone() for each in (x, y))
    trace.batch([x, y], trains=True)
    loss = loss_of(net, x, y, here)
    trace.pause()
    trace.inside = True
    number = trace.known(loss)
    trace.inside = False
    loss.backward()
    for parameter in net.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return trace, number


def answer(before: LossOf, after: LossOf | None = None, worlds: Sequence[int] = WORLDS, **how: Any) -> StepAnswer:
    """What is concluded about the first loss on one process, and the second, or the same, on others."""
    make = {"make": how["make"]} if "make" in how else {}
    (original,) = traced(before, 1, **make)
    first, *others = worlds
    ranks = traced(after or before, first, **how)
    pretended = [traced(after or before, world, **how)[0] for world in others]
    return conclude(original, ranks, pretended)


def truth(loss_of: LossOf, world: int, make: Callable[[], nn.Module] = model) -> bool:
    """Whether the mean over the ranks is the gradient of the whole batch, measured."""

    def gradient(here: Here) -> Gradients:
        net, (x, y) = make(), data()
        x, y = (each.chunk(here.world)[here.rank] for each in (x, y))
        loss_of(net, x, y, here).backward()
        return [parameter.grad for parameter in net.parameters() if parameter.grad is not None]

    (expected,) = (gradient(Here(1, 0)),)
    found = mean([gradient(Here(world, rank)) for rank in range(world)])[0]
    return all(torch.allclose(a, b, rtol=1e-3, atol=1e-6) for a, b in zip(expected, found))
