"""How far a loader is in its epoch, so that a checkpoint can say it and another run can go on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from accel_runtime.data.iteration import Iteration, Iterations, Share
from accel_runtime.data.randomness import restore_generators, states_of_generators
from accel_runtime.data.source import Batch, Loader, Source

Pairs = Iterator[tuple[Batch, Share | None]]


@dataclass(frozen=True, slots=True)
class Start:
    """All that decides the order of an epoch, as it was before its iterator was made."""

    generators: dict[str, Any]
    epochs: list[int | None]

    def restore(self, loader: Loader) -> None:
        restore_generators(self.generators, _owners(loader))
        for thing, epoch in zip(_counting(loader), self.epochs):
            if epoch is not None:
                thing.epoch = epoch


def start_of(loader: Loader) -> Start:
    epochs = [epoch if isinstance(epoch := getattr(one, "epoch", None), int) else None for one in _counting(loader)]
    return Start(states_of_generators(_owners(loader)), epochs)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a loader stood. `start` is that of the pass under way, else how the next one would begin.

    `before` counts batches of the script's own loader that were used up in this pass by another number of processes;
    `rounds` counts what each process took since.
    """

    passes: int
    steps: int
    start: Start
    under_way: bool = False
    before: int = 0
    rounds: int = 0


class Passage:
    """The passes over one loader. One that was left in its first batch was a look at the data, and is not counted."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.passes = 0
        self.steps = 0  # batches handed out in passes that have ended
        self.before = 0
        self.skipped = 0
        self.start: Start | None = None
        self.iteration: Iteration | None = None
        self.resumption: Resumption | None = None

    def enter(self, iteration: Iteration, start: Start, skipped: int = 0) -> None:
        """A pass has handed out its first batch; `skipped` came before it."""
        if self.iteration is not None:
            self.leave(self.iteration, ended=False)
        self.iteration, self.start, self.skipped = iteration, start, skipped

    def leave(self, iteration: Iteration, ended: bool) -> None:
        """Also called late, when an iterator that was left by `break` is collected."""
        if self.iteration is not iteration:
            return
        self.iteration = None
        self.before = 0
        if ended or iteration.index > 1:
            self.passes += 1
            self.steps += self.skipped + iteration.index

    def position(self, iterations: Iterations) -> Position:
        if self.resumption is not None:
            return self.resumption.here()
        iteration, start = self.iteration, self.start
        if iteration is None or start is None or iteration not in iterations.stack:
            return Position(self.passes, self.steps, start_of(self.loader))
        rounds = self.skipped + iteration.index - iteration.first
        return Position(self.passes, self.steps, start, True, self.before, rounds)

    def resume(self, position: Position, settings: Resuming) -> None:
        """Makes the next pass go on from the position."""
        self.passes, self.steps = position.passes, position.steps
        self.iteration, self.resumption = None, None
        if position.under_way:
            self.resumption = Resumption(position, settings, Iteration(None))
        else:
            position.start.restore(self.loader)


@dataclass(frozen=True, slots=True)
class Resuming:
    """How this run differs from the one that saved, and what to do when a loader's iterator exists."""

    same_world: bool
    batches_per_round: int  # when the checkpoint was saved
    restore_random: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Resumption:
    """A pass that another run began. Its `iteration` exists beforehand: what counts micro-steps refers to it."""

    position: Position
    settings: Resuming
    iteration: Iteration

    @property
    def before(self) -> int:
        position = self.position
        return position.before + (0 if self.settings.same_world else position.rounds * self.settings.batches_per_round)

    @property
    def rounds(self) -> int:
        return self.position.rounds if self.settings.same_world else 0

    def here(self) -> Position:
        """The position in the terms of this run."""
        return replace(self.position, before=self.before, rounds=self.rounds)

    def pairs(self, loader: Loader, source: Source, batches_per_round: int) -> Pairs:
        """The rest of the pass. All that its order draws is drawn here, and then the generators of the run are set."""
        self.position.start.restore(loader)
        if self.before:
            source = source.beginning(self.before)
        pairs = source.resumed(self.rounds)
        self.settings.restore_random()
        whole = source.total
        self.iteration.first = self.before // batches_per_round
        self.iteration.index = self.iteration.first + self.rounds
        self.iteration.total = None if whole is None else self.iteration.first + whole
        self.iteration.pads = source.pads
        return pairs


def _owners(loader: Loader) -> list[Any]:
    """What carries a generator of its own, each generator once."""
    found: dict[int, Any] = {}
    for owner in (loader, loader.batch_sampler, loader.sampler):
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator):
            found.setdefault(id(generator), owner)
    return list(found.values())


def _counting(loader: Loader) -> tuple[Any, ...]:
    """What may carry the number of the epoch."""
    return loader.batch_sampler, loader.sampler, loader.dataset
