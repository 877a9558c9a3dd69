"""The loaders that people write, each made by a function of its own: what resuming is tried on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

BATCH = 2
SAMPLES = 24  # a multiple of the batches of 1, 2 and 3 processes


class Table(Dataset):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, row: int) -> tuple[int, torch.Tensor]:
        return row, torch.full((4,), row / 10)


class Noisy(Table):
    """Augments with torch's global generator."""

    def __getitem__(self, row: int) -> tuple[int, torch.Tensor]:
        return row, torch.full((4,), row / 10) + torch.rand(4)


class OwnNoise(Table):
    """Augments with a generator of its own."""

    def __init__(self) -> None:
        self.noise = numpy.random.default_rng(5)

    def __getitem__(self, row: int) -> tuple[int, torch.Tensor]:
        return row, torch.full((4,), row / 10) + float(self.noise.random())


class Order(Sampler):
    """A sampler of the script's own; subclasses say in which order."""

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[int]:
        return iter(self.rows())

    def rows(self) -> list[int]:
        raise NotImplementedError


class GlobalTorch(Order):
    def rows(self) -> list[int]:
        return torch.randperm(SAMPLES).tolist()


class GlobalNumpy(Order):
    def rows(self) -> list[int]:
        return numpy.random.permutation(SAMPLES).tolist()


class GlobalPython(Order):
    def rows(self) -> list[int]:
        return random.sample(range(SAMPLES), SAMPLES)


class OwnTorch(Order):
    def __init__(self) -> None:
        self.g = torch.Generator().manual_seed(1)

    def rows(self) -> list[int]:
        return torch.randperm(SAMPLES, generator=self.g).tolist()


class OwnNumpy(Order):
    def __init__(self) -> None:
        self.rng = numpy.random.default_rng(1)

    def rows(self) -> list[int]:
        return self.rng.permutation(SAMPLES).tolist()


class OldNumpy(Order):
    def __init__(self) -> None:
        self.rng = numpy.random.RandomState(1)

    def rows(self) -> list[int]:
        return self.rng.permutation(SAMPLES).tolist()


class OwnPython(Order):
    def __init__(self) -> None:
        self.rng = random.Random(1)

    def rows(self) -> list[int]:
        return self.rng.sample(range(SAMPLES), SAMPLES)


class OneByOne(Order):
    """Draws at every item, from a generator of its own."""

    def __init__(self) -> None:
        self.rng = random.Random(1)

    def __iter__(self) -> Iterator[int]:
        left = list(range(SAMPLES))
        while left:
            yield left.pop(self.rng.randrange(len(left)))


class Nested(Order):
    def __init__(self) -> None:
        self.parts = {"even": OwnPython(), "odd": OwnNumpy()}

    def rows(self) -> list[int]:
        even, odd = self.parts["even"].rows(), self.parts["odd"].rows()
        return [row for row in even if row % 2 == 0] + [row for row in odd if row % 2]


class Counting(Order):
    """Counts its epochs by itself."""

    def __init__(self) -> None:
        self.calls = 0

    def rows(self) -> list[int]:
        self.calls += 1
        return torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(self.calls)).tolist()


class Settable(Order):
    """Is told the epoch, or goes on by itself."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def rows(self) -> list[int]:
        rows = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        self.epoch += 1
        return rows


class InPlace(Order):
    """Shuffles the list of the last epoch again."""

    def __init__(self) -> None:
        self.order = list(range(SAMPLES))

    def rows(self) -> list[int]:
        random.shuffle(self.order)
        return list(self.order)


class Stateful(Order):
    """Has a state that only it knows how to take and to put back."""

    def __init__(self) -> None:
        self.hidden = iter(range(1, 100))
        self.taken = 0

    def rows(self) -> list[int]:
        self.taken = next(self.hidden)
        return torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(self.taken)).tolist()

    def state_dict(self) -> dict[str, int]:
        return {"taken": self.taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.taken = state["taken"]
        self.hidden = iter(range(self.taken + 1, 100))


class Hidden(Order):
    """Draws from a generator that is no attribute."""

    def __init__(self) -> None:
        rng = random.Random(1)
        self.draw = lambda: rng.sample(range(SAMPLES), SAMPLES)

    def rows(self) -> list[int]:
        return self.draw()


MODULE_CHANCE = random.Random()


class OfModule(Order):
    def __init__(self) -> None:
        MODULE_CHANCE.seed(1)

    def rows(self) -> list[int]:
        return MODULE_CHANCE.sample(range(SAMPLES), SAMPLES)


class OfClass(Order):
    """Holds its generator for all samplers of its kind."""

    chance = random.Random()

    def __init__(self) -> None:
        self.chance.seed(1)

    def rows(self) -> list[int]:
        return self.chance.sample(range(SAMPLES), SAMPLES)


class InSlot(Order):
    __slots__ = ("__chance",)

    def __init__(self) -> None:
        self.__chance = random.Random(1)

    def rows(self) -> list[int]:
        return self.__chance.sample(range(SAMPLES), SAMPLES)


class AsDefault(Order):
    def __init__(self) -> None:
        self.rows.__defaults__[0].seed(1)

    def rows(self, chance: random.Random = random.Random()) -> list[int]:  # noqa: B008
        return chance.sample(range(SAMPLES), SAMPLES)


class OfHelper(Order):
    """Calls a function that draws from a generator of the module, in a comprehension."""

    def __init__(self) -> None:
        CHANCES["order"].seed(1)

    def rows(self) -> list[int]:
        return drawn_rows()


CHANCES = {"order": random.Random()}


def drawn_rows() -> list[int]:
    return [row for _, row in sorted((CHANCES["order"].random(), row) for row in range(SAMPLES))]


class Array(Order):
    """Changes an array of NumPy from epoch to epoch."""

    def __init__(self) -> None:
        self.order = numpy.arange(SAMPLES)

    def rows(self) -> list[int]:
        self.order = numpy.roll(self.order, 5)
        return self.order.tolist()


class Live(Order):
    """Holds on to an iterator."""

    def __init__(self) -> None:
        self.seeds = iter(range(1, 100))

    def rows(self) -> list[int]:
        return torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(next(self.seeds))).tolist()


class Buckets(Sampler):
    """Batches of changing size, in an order of its own."""

    def __init__(self, own: bool) -> None:
        self.rng = random.Random(1) if own else None

    def __len__(self) -> int:
        return SAMPLES // BATCH

    def __iter__(self) -> Iterator[list[int]]:
        starts = list(range(0, SAMPLES, 2 * BATCH))
        (self.rng or random).shuffle(starts)
        for start in starts:
            yield list(range(start, start + BATCH - 1))
            yield list(range(start + BATCH - 1, start + 2 * BATCH))


class LateDraws(Sampler):
    """Draws from the global generator at every batch, between what the training draws."""

    def __len__(self) -> int:
        return SAMPLES // BATCH

    def __iter__(self) -> Iterator[list[int]]:
        left = list(range(SAMPLES))
        while left:
            yield [left.pop(int(torch.randint(len(left), ()))) for _ in range(BATCH)]


class Stream(IterableDataset):
    """Subclasses say in which order."""

    def rows(self) -> list[int]:
        return list(range(SAMPLES))

    def __iter__(self) -> Iterator[tuple[int, torch.Tensor]]:
        worker = get_worker_info()
        part = slice(None) if worker is None else slice(worker.id, None, worker.num_workers)
        for row in self.rows()[part]:
            yield row, torch.full((4,), row / 10)


class ShuffledStream(Stream):
    def rows(self) -> list[int]:
        return torch.randperm(SAMPLES).tolist()


class OwnStream(Stream):
    def __init__(self) -> None:
        self.rng = random.Random(1)

    def rows(self) -> list[int]:
        return self.rng.sample(range(SAMPLES), SAMPLES)


class StatefulStream(Stream):
    def __init__(self) -> None:
        self.seeds = iter(range(1, 100))
        self.taken = 0

    def rows(self) -> list[int]:
        self.taken = next(self.seeds)
        return torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(self.taken)).tolist()

    def state_dict(self) -> dict[str, int]:
        return {"taken": self.taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.taken = state["taken"]
        self.seeds = iter(range(self.taken + 1, 100))


class HiddenStream(Stream):
    def __init__(self) -> None:
        rng = random.Random(1)
        self.draw = lambda: rng.sample(range(SAMPLES), SAMPLES)

    def rows(self) -> list[int]:
        return self.draw()


def over(sampler: Any) -> Callable[[], DataLoader]:
    return lambda: DataLoader(Table(), BATCH, sampler=sampler())


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def workers(**settings: Any) -> Callable[[], DataLoader]:
    return lambda: DataLoader(Table(), BATCH, num_workers=2, **settings)


LOADERS: dict[str, Callable[[], DataLoader]] = {
    "sequential": lambda: DataLoader(Table(), BATCH),
    "shuffle": lambda: DataLoader(Table(), BATCH, shuffle=True),
    "shuffle, generator": lambda: DataLoader(Table(), BATCH, shuffle=True, generator=seeded()),
    "shuffle, drop_last": lambda: DataLoader(Table(), 5, shuffle=True, drop_last=True),
    "shuffle, short last batch": lambda: DataLoader(Table(), 5, shuffle=True),
    "with replacement": over(lambda: RandomSampler(Table(), replacement=True)),
    "more samples than data": over(lambda: RandomSampler(Table(), num_samples=SAMPLES + 12)),
    "subset": over(lambda: SubsetRandomSampler(range(SAMPLES))),
    "subset, generator": over(lambda: SubsetRandomSampler(range(SAMPLES), generator=seeded())),
    "weighted": over(lambda: WeightedRandomSampler([1.0] * SAMPLES, SAMPLES)),
    "weighted, generator": over(lambda: WeightedRandomSampler([1.0] * SAMPLES, SAMPLES, generator=seeded())),
    "batch sampler of a generator": lambda: DataLoader(
        Table(), batch_sampler=BatchSampler(RandomSampler(Table(), generator=seeded()), BATCH, False)
    ),
    "batches as items": lambda: DataLoader(
        Table(), batch_size=None, sampler=RandomSampler(Table(), generator=seeded()), collate_fn=as_batch
    ),
    "items one by one": lambda: DataLoader(Table(), batch_size=None, shuffle=True, collate_fn=as_batch),
    "own order, torch": over(GlobalTorch),
    "own order, numpy": over(GlobalNumpy),
    "own order, python": over(GlobalPython),
    "own generator, torch": over(OwnTorch),
    "own generator, numpy": over(OwnNumpy),
    "own generator, old numpy": over(OldNumpy),
    "own generator, python": over(OwnPython),
    "own generator, item by item": over(OneByOne),
    "own generators, nested": over(Nested),
    "counts its epochs": over(Counting),
    "set_epoch": over(Settable),
    "shuffled in place": over(InPlace),
    "sampler with a state": over(Stateful),
    "buckets": lambda: DataLoader(Table(), batch_sampler=Buckets(own=False)),
    "buckets, own generator": lambda: DataLoader(Table(), batch_sampler=Buckets(own=True)),
    "noise from the global generator": lambda: DataLoader(Noisy(), BATCH, shuffle=True),
    "noise from a generator of its own": lambda: DataLoader(OwnNoise(), BATCH, shuffle=True),
    "workers": workers(shuffle=True),
    "workers, own generator": lambda: DataLoader(Table(), BATCH, num_workers=2, sampler=OneByOne()),
    "persistent workers": workers(shuffle=True, persistent_workers=True),
    "persistent workers, generator": lambda: DataLoader(
        Table(), BATCH, shuffle=True, num_workers=2, persistent_workers=True, generator=seeded()
    ),
    "not in order": workers(shuffle=True, in_order=False),
    "stream": lambda: DataLoader(Stream(), BATCH),
    "stream, shuffled": lambda: DataLoader(ShuffledStream(), BATCH),
    "stream, own generator": lambda: DataLoader(OwnStream(), BATCH),
    "stream with a state": lambda: DataLoader(StatefulStream(), BATCH),
    "stream, workers": lambda: DataLoader(ShuffledStream(), BATCH, num_workers=2),
    "generator in a closure": over(Hidden),
    "generator of the module": over(OfModule),
    "generator of the class": over(OfClass),
    "generator in a slot": over(InSlot),
    "generator as a default": over(AsDefault),
    "generator of a helper": over(OfHelper),
    "array of NumPy": over(Array),
    "stream, generator in a closure": lambda: DataLoader(HiddenStream(), BATCH),
    # What cannot be drawn again: refused, and never in silence.
    "live iterator": over(Live),
    "stream, persistent workers": lambda: DataLoader(ShuffledStream(), BATCH, num_workers=2, persistent_workers=True),
    "late draws": lambda: DataLoader(Table(), batch_sampler=LateDraws()),
}
INEXACT = {"live iterator", "late draws", "stream, persistent workers"}
# Streams of which every worker has a part: the next number of processes cannot take an epoch up.
DEALT_BY_WORKERS = {"stream, workers", "stream, persistent workers"}
WITH_WORKERS = {name for name in LOADERS if "workers" in name or name == "not in order"}


def as_batch(item: Any) -> Any:
    row, inputs = item
    return torch.tensor([row]), inputs[None]
