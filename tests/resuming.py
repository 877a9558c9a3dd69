"""A small training that can stop anywhere: what it did, batch by batch, is what two runs are compared by."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from accel_runtime import Accelerator
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

BATCHES = 6  # in an epoch of one process
EPOCHS = 3


class Stream(IterableDataset):
    """As long as the table, in an order drawn from the global generator when a pass begins."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        worker = torch.utils.data.get_worker_info()
        part = slice(None) if worker is None else slice(worker.id, None, worker.num_workers)
        for row in torch.randperm(self.rows)[part].tolist():
            yield torch.tensor(row), torch.full((4,), row / 10)


@dataclass(frozen=True)
class Case:
    workers: int = 0
    accumulation: int = 1
    stream: bool = False
    processes: int = 1
    batch_size: int = 2

    @property
    def rows(self) -> int:
        return BATCHES * self.batch_size * self.processes


@dataclass
class Story:
    """The losses by step, and the rows of every batch."""

    losses: list[float]
    rows: list[list[int]]
    weights: list[float]
    learning_rate: float
    drawn: tuple[float, float]


def train(case: Case, project: Path, stop_at: tuple[int, int] | None = None, resume: bool = False) -> Story:
    """Trains to the end, or saves and stops after a batch (epoch, batch)."""
    torch.manual_seed(7)
    random.seed(7)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=case.accumulation, project_dir=project)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    rows = torch.arange(case.rows)
    table = TensorDataset(rows, (rows[:, None] / 10).expand(-1, 4).contiguous())
    data = Stream(case.rows) if case.stream else table
    loader = DataLoader(data, case.batch_size, shuffle=not case.stream, num_workers=case.workers)
    model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
    resumed = accelerator.load_state("latest", missing_ok=True) if resume else None
    assert (resumed is not None) == resume
    losses: list[float] = []
    seen: list[list[int]] = []
    for epoch in range(resumed.epoch if resumed else 0, EPOCHS):
        first = resumed.batch if resumed and epoch == resumed.epoch else 0
        for batch, (numbers, inputs) in enumerate(loader, first):
            with accelerator.accumulate(model):
                loss = model(inputs).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(loss.item())
            seen.append(numbers.tolist())
            if stop_at == (epoch, batch):
                accelerator.save_state()
                break
        if stop_at is not None and epoch == stop_at[0]:
            break
    flat = [value for weight in model.parameters() for value in weight.flatten().tolist()]
    return Story(losses, seen, flat, scheduler.get_last_lr()[0], (torch.rand(1).item(), random.random()))


def assert_same_rest(control: Story, resumed: Story) -> None:
    """The resumed run did what the control run did from there on, to the bit."""
    done = len(control.losses) - len(resumed.losses)
    assert resumed.rows == control.rows[done:]
    assert resumed.losses == control.losses[done:]
    assert resumed.weights == control.weights
    assert (resumed.learning_rate, resumed.drawn) == (control.learning_rate, control.drawn)
