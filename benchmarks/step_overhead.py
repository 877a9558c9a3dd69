"""Function calls that a training step costs, beside plain PyTorch: deterministic, so a test can hold the line.

Counts what `sys.setprofile` reports between two batches: calls of Python functions and of C functions. Peers are
counted in the same run where they are installed.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils.data import DataLoader, TensorDataset

STEPS = 16
WINDOW = 4  # micro-steps of an accumulation window
COUNTED = 2 * WINDOW  # in the middle of an epoch, after a first window that warms caches up
MAX_NORM = 1.0


@dataclass(frozen=True)
class Case:
    precision: str = "no"
    accumulation: int | None = None  # None: without `accumulate`
    clipping: bool = False
    schedule: bool = False

    def __str__(self) -> str:
        parts = ["fp32" if self.precision == "no" else self.precision]
        parts += [f"accumulation {self.accumulation}"] if self.accumulation else []
        parts += ["clipping"] if self.clipping else []
        parts += ["schedule"] if self.schedule else []
        return ", ".join(parts)


CASES = [Case(*choice) for choice in product(("no", "bf16"), (None, 1, WINDOW), (False, True), (False, True))]


@dataclass
class Calls:
    python: float = 0
    c: float = 0

    def __sub__(self, other: Calls) -> Calls:
        return Calls(self.python - other.python, self.c - other.c)


def parts() -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[Any], LRScheduler]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    data = TensorDataset(torch.randn(4 * STEPS, 8), torch.randint(2, (4 * STEPS,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, optimizer, DataLoader(data, batch_size=4), LambdaLR(optimizer, lambda step: 0.9**step)


def plain(case: Case) -> Iterator[None]:
    model, optimizer, loader, scheduler = parts()
    window = case.accumulation or 1
    for number, (inputs, targets) in enumerate(loader, 1):
        if case.precision == "bf16":
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(inputs), targets)
        else:
            loss = nn.functional.cross_entropy(model(inputs), targets)
        if window > 1:
            loss = loss / window
        loss.backward()
        if number % window == 0:
            if case.clipping:
                torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
            optimizer.step()
            if case.schedule:
                scheduler.step()
            optimizer.zero_grad()
        yield


def accelerated(case: Case, accelerator_class: Any) -> Iterator[None]:
    accelerator = accelerator_class(
        cpu=True, mixed_precision=case.precision, gradient_accumulation_steps=case.accumulation or 1
    )
    model, optimizer, loader, scheduler = accelerator.prepare(*parts())
    for inputs, targets in loader:
        if case.accumulation:
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.cross_entropy(model(inputs), targets))
                if case.clipping and accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), MAX_NORM)
                optimizer.step()
                if case.schedule:
                    scheduler.step()
                optimizer.zero_grad()
        else:
            accelerator.backward(nn.functional.cross_entropy(model(inputs), targets))
            if case.clipping:
                accelerator.clip_grad_norm_(model.parameters(), MAX_NORM)
            optimizer.step()
            if case.schedule:
                scheduler.step()
            optimizer.zero_grad()
        yield


def ours(case: Case) -> Iterator[None]:
    from accel_runtime import Accelerator

    return accelerated(case, Accelerator)


def accelerate(case: Case) -> Iterator[None]:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)
    return accelerated(case, Accelerator)


def fabric(case: Case) -> Iterator[None]:
    from lightning_fabric import Fabric

    run = Fabric(accelerator="cpu", precision="32-true" if case.precision == "no" else "bf16-mixed")
    model, optimizer, loader, scheduler = parts()
    model, optimizer = run.setup(model, optimizer)
    loader = run.setup_dataloaders(loader)
    window = case.accumulation or 1
    for number, (inputs, targets) in enumerate(loader, 1):
        due = number % window == 0
        with run.no_backward_sync(model, enabled=not due):
            loss = nn.functional.cross_entropy(model(inputs), targets)
            run.backward(loss / window if window > 1 else loss)
        if due:
            if case.clipping:
                run.clip_gradients(model, optimizer, max_norm=MAX_NORM)
            optimizer.step()
            if case.schedule:
                scheduler.step()
            optimizer.zero_grad()
        yield


def calls_per_step(run: Callable[[Case], Iterator[None]], case: Case) -> Calls:
    """The mean over whole accumulation windows."""
    counted = {"call": 0, "c_call": 0}

    def count(frame: Any, event: str, argument: Any) -> None:
        if event in counted:
            counted[event] += 1

    steps = run(case)
    for _ in range(WINDOW):
        next(steps)
    # A collection would run the callbacks of whoever watches collections, and they would be counted.
    gc.disable()
    sys.setprofile(count)
    try:
        # Not a loop over `steps`: what drives the run must cost the same for all.
        for _ in range(COUNTED):
            next(steps)
    finally:
        sys.setprofile(None)
        gc.enable()
    return Calls(counted["call"] / COUNTED, counted["c_call"] / COUNTED)


def main() -> None:
    torch.set_num_threads(1)
    runs: dict[str, Callable[[Case], Iterator[None]]] = {"accel_runtime": ours}
    for name, package, run in (("accelerate", "accelerate", accelerate), ("fabric", "lightning_fabric", fabric)):
        if importlib.util.find_spec(package):
            runs[name] = run
        else:
            print(f"{name} is not installed here, so it is not counted")
    print(f"{'calls per step (Python / C)':42}{'plain':>16}" + "".join(f"{name:>18}" for name in runs))
    for case in CASES:
        base = calls_per_step(plain, case)
        row = f"{case!s:42}{base.python:>8.1f} /{base.c:>6.1f}"
        for run in runs.values():
            more = calls_per_step(run, case) - base
            row += f"{more.python:>+10.1f} /{more.c:>+6.1f}"
        print(row)


if __name__ == "__main__":
    main()
