"""One training in the ways that people stop and resume it: what it did is compared with a run that was never stopped."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy
import torch
from accel_runtime import Accelerator, DataLoaderConfiguration
from accel_runtime.errors import AccelError
from torch import nn
from torch.utils.data import DataLoader

from tests.loaders import LOADERS

EPOCHS = 3
# How a script goes on. The first is ours, "stateful" is Accelerate's setting, the others are Accelerate's recipes.
IDIOMS = ("epoch", "stateful", "skip", "by hand")
# Where in the loop it saves.
PLACES = ("bottom", "top")


@dataclass
class Story:
    rows: list[Any] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    told: list[str] = field(default_factory=list)  # warnings
    resumed: str = ""


Joined = Callable[[list[Any]], Iterable[Any]]


def first_of(loaders: list[Any]) -> Iterable[Any]:
    return loaders[0]


def zipped(loaders: list[Any]) -> Iterator[Any]:
    return ((torch.cat([a[0], b[0]]), torch.cat([a[1], b[1]])) for a, b in zip(*loaders))


class Cycled:
    """Every batch of the first loader with one of the second, which begins again by itself, lazily."""

    def __init__(self) -> None:
        self.endless: Iterator[Any] | None = None

    def __call__(self, loaders: list[Any]) -> Iterator[Any]:
        for a in loaders[0]:
            if self.endless is None:
                self.endless = (batch for _ in count() for batch in loaders[1])
            b = next(self.endless)
            yield torch.cat([a[0], b[0]]), torch.cat([a[1], b[1]])


def train(
    make: Callable[[], list[DataLoader]],
    folder: Path,
    stop_at: tuple[int, int] | None = None,
    place: str = "bottom",
    resume: str | None = None,
    joined: Joined = first_of,
    seedable: bool = False,
    accumulation: int = 1,
) -> Story:
    """Trains to the end, or saves when batch (epoch, batch) is in hand and stops; or goes on from there."""
    torch.manual_seed(7)
    random.seed(7)
    numpy.random.seed(7)
    config = DataLoaderConfiguration(use_stateful_dataloader=resume == "stateful", use_seedable_sampler=seedable)
    accelerator = Accelerator(cpu=True, dataloader_config=config, gradient_accumulation_steps=accumulation)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    loaders = [accelerator.prepare(loader) for loader in make()]
    story = Story()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        first_epoch, first_batch = 0, 0
        if resume:
            resumed = accelerator.load_state(folder / "state")
            story.resumed = repr(resumed)
            first_epoch, first_batch = recorded(folder)
            if resume == "step":
                assert resumed.step
            elif resume == "epoch":
                assert (resumed.epoch, resumed.batch) == (first_epoch, first_batch)
            elif first_batch and first_batch == length_of(loaders[0]):
                # Accelerate's recipes count epochs by dividing steps.
                first_epoch, first_batch = first_epoch + 1, 0
        for epoch in range(first_epoch, EPOCHS):
            begun = first_batch if epoch == first_epoch else 0
            active, batch = loaders, 0 if resume == "by hand" else begun
            if resume == "skip" and begun:
                active = [accelerator.skip_first_batches(loader, begun) for loader in loaders]
            for rows, inputs in joined(active):
                if resume == "by hand" and batch < begun:
                    batch += 1
                    continue
                if stop_at == (epoch, batch) and place == "top":
                    return saved(accelerator, folder, epoch, batch, story, told)
                with accelerator.accumulate(model):
                    loss = model(inputs).square().mean()
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
                story.rows.append(rows.tolist())
                story.losses.append(loss.item())
                if stop_at == (epoch, batch):
                    return saved(accelerator, folder, epoch, batch + 1, story, told)
                batch += 1
            if stop_at == (epoch, -1):
                return saved(accelerator, folder, epoch + 1, 0, story, told)
    weights = [value for weight in model.parameters() for value in weight.flatten().tolist()]
    story.end = [*weights, torch.rand(1).item(), random.random(), float(numpy.random.rand())]
    story.told = heard(told)
    return story


def heard(told: list[warnings.WarningMessage]) -> list[str]:
    """What was warned of, but for what Python 3.12 and later say of every fork beside a thread."""
    return [str(one.message) for one in told if not issubclass(one.category, DeprecationWarning)]


def saved(accelerator: Accelerator, folder: Path, epoch: int, batch: int, story: Story, told: list[Any]) -> Story:
    accelerator.save_state(folder / "state")
    if accelerator.is_main_process:
        (folder / "place").write_text(f"{epoch} {batch}")
    accelerator.wait_for_everyone()
    story.told = heard(told)
    return story


def recorded(folder: Path) -> tuple[int, int]:
    """What scripts of Accelerate keep in the name of a folder."""
    epoch, batch = (folder / "place").read_text().split()
    return int(epoch), int(batch)


def length_of(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def outcome(
    make: Any, folder: Path, control: Story, stop_at: tuple[int, int], place: str, idiom: str, **kinds: Any
) -> str:
    """exact, refused or warned of with the reason; or how it differs in silence."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        stopped = train(make, folder, stop_at, place, **kinds)
    except AccelError as error:
        return f"refused at save: {error}"
    try:
        resumed = train(make, folder, resume=idiom, **kinds)
    except AccelError as error:
        return f"refused at load: {error}"
    if stopped.rows + resumed.rows == control.rows and stopped.losses + resumed.losses == control.losses:
        if resumed.end == control.end:
            return "exact" if not resumed.told + stopped.told else f"exact, but warned: {resumed.told + stopped.told}"
    if resumed.told or stopped.told:
        return f"warned: {(stopped.told + resumed.told)[0]}"
    return "SILENT: " + difference(control, stopped, resumed)


def difference(control: Story, stopped: Story, resumed: Story) -> str:
    rows = stopped.rows + resumed.rows
    if rows != control.rows:
        where = next((at for at, pair in enumerate(zip(rows, control.rows)) if pair[0] != pair[1]), "the end")
        return f"rows differ at {where}: {len(rows)} batches for {len(control.rows)}; {resumed.resumed}"
    return "losses differ" if stopped.losses + resumed.losses != control.losses else "weights or generators differ"


def made(name: str) -> Callable[[], list[DataLoader]]:
    return lambda: [LOADERS[name]()]
