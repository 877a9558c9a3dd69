"""Which loader is being iterated, how far it is, and which rows of its current batch are real samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.utils.data import DataLoader

Loader = DataLoader[Any]
Batch = Any


@dataclass(frozen=True, slots=True)
class Share:
    """The samples of one round: how many this process holds, and how many of each process are not repeats.

    `real` is None when nothing was repeated to fill the round.
    """

    rows: int | None
    real: tuple[int, ...] | None = None

    def of_items(self) -> Share:
        """For items that are whole batches: how many rows they have is not known, so all of them count, or none."""
        return Share(None, self.real and tuple(-1 if count else 0 for count in self.real))


# Each batch with its share in the round, and a key to know it again by: its indices, or a glance at what it holds.
Pairs = Iterator[tuple[Batch, Share | None, Any]]


@dataclass(slots=True, eq=False)
class Iteration:
    """One pass over one loader. `index` counts the batches handed out; `total` is None when it is not known."""

    total: int | None
    pads: bool = False  # whether the last round repeats samples, or may
    index: int = 0
    batches: int = 0  # of the script's own loader, that all processes have had
    first: int = 0  # batches that the epoch had before this run shared it out
    is_last: bool = False
    beside: bool = False  # whether it went on while an iteration that began later was under way, as in zip(a, b)
    share: Share | None = None
    short: tuple[int, int] | None = None  # the samples of a batch and of the last one, where a process alone has fewer
    batch: Batch = None  # the one in hand
    recent: tuple[Any, ...] = ()  # keys of the last batches
    work: int = 0  # of `Iterations`, when the batch was handed out
    worked: bool = False  # whether an earlier batch of this loader was worked on
    usual: int = 0  # how often, where that was the same for all; -1 where not
    passed_over: bool = False  # whether an earlier batch was not worked on
    trained: int = 0  # earlier batches of this pass that were worked on
    ahead: int = 0  # batches of this pass that were not, before the first that was; -1 when one came later
    mark: Any = None  # the last batch that another number of processes has used
    loader: Any = None  # the prepared one, while it is iterated


@dataclass(slots=True, eq=False)
class Iterations:
    """The loaders being iterated, innermost last: an evaluation inside an epoch is on top of it."""

    stack: list[Iteration] = field(default_factory=list)
    wants_end: bool = False  # whether somebody must know the last batch before it is used
    work: int = 0  # backward passes and optimizer steps so far: who has seen none since a batch has not used it
    due: bool = False  # whether gradients wait for a step
    trains: bool = False  # whether there is an optimizer
    fed: bool = False  # whether any of that came while a batch was in hand
    drawn: Tensor | None = None  # torch's generator, when the latest batch was handed out
    counter: Tensor | None = None  # a buffer that a forward pass in training changes
    counted: int = 0  # its version, at that moment
    ended: Callable[[Iteration], None] = lambda iteration: None  # called when a pass is over, by `break` too

    def watch(self, model: Module) -> None:
        """A model that counts its forward passes, as BatchNorm does, betrays a batch that is half through."""
        counters = (buffer for name, buffer in model.named_buffers() if name.endswith("num_batches_tracked"))
        self.counter = next(counters, self.counter)

    def indices(self) -> list[int]:
        """How far each of them is."""
        return [iteration.index for iteration in self.stack]

    @property
    def current(self) -> Iteration | None:
        return self.stack[-1] if self.stack else None
