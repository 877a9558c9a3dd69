"""Which loader is being iterated, how far it is, and which rows of its current batch are real samples."""

from __future__ import annotations

from dataclasses import dataclass, field


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


@dataclass(slots=True, eq=False)
class Iteration:
    """One pass over one loader. `index` counts the batches handed out; `total` is None when it is not known."""

    total: int | None
    pads: bool = False  # whether the last round repeats samples, or may
    index: int = 0
    first: int = 0  # batches that the epoch had before this run shared it out
    is_last: bool = False
    beside: bool = False  # whether it went on while an iteration that began later was under way, as in zip(a, b)
    share: Share | None = None
    short: tuple[int, int] | None = None  # the samples of a batch and of the last one, where a process alone has fewer


@dataclass(slots=True, eq=False)
class Iterations:
    """The loaders being iterated, innermost last: an evaluation inside an epoch is on top of it."""

    stack: list[Iteration] = field(default_factory=list)
    wants_end: bool = False  # whether somebody must know the last batch before it is used

    def indices(self) -> list[int]:
        """How far each of them is."""
        return [iteration.index for iteration in self.stack]

    @property
    def current(self) -> Iteration | None:
        return self.stack[-1] if self.stack else None
