"""How far a loader is in its epoch, so that a checkpoint can say it and another run can go on from there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import IterableDataset

from accel_runtime.data.chance import Moment, Values, Watch, moment_of, own_states
from accel_runtime.data.drawing import Mark, Track, digest_of
from accel_runtime.data.iteration import Batch, Iteration, Iterations, Loader, Share
from accel_runtime.data.resumption import Resuming, Resumption
from accel_runtime.data.source import Source, Start
from accel_runtime.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Held:
    """A batch that was handed out and not used."""

    batch: Batch
    share: Share | None


@dataclass(frozen=True, slots=True)
class Seen:
    """A digest of the last batches of a pass, and how many they are."""

    count: int
    digest: int


@dataclass(frozen=True, slots=True)
class Position:
    """Where a loader stood. `start` is that of the pass under way, else how the next one would begin.

    `before` counts batches of the script's own loader that were used up in this pass by other numbers of processes, in
    `done` steps; `rounds` counts what each process has used since.
    """

    passes: int
    steps: int
    start: Start
    under_way: bool = False
    before: int = 0
    done: int = 0
    rounds: int = 0
    ended: bool = False
    total: int | None = None
    trains: bool = False
    usual: int = 0
    held: Held | None = None
    seen: Seen | None = None
    mark: Mark | None = None
    now: dict[str, Any] | None = None
    workers_seed: int | None = None  # of workers that outlive a pass
    passes_over: bool = False  # whether the script leaves batches of this pass without a step


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass under way, and how it began. `skipped`, `before` and `done` came before its first batch."""

    iteration: Iteration
    made: Moment
    values: Values
    track: Track
    skipped: int = 0
    before: int = 0
    done: int = 0
    trained: bool = False  # by the run that began it

    @property
    def start(self) -> Start:
        return Start(self.made, self.values, self.track.opened, self.track.first)

    @property
    def rounds(self) -> int:
        """What this process was handed out."""
        return self.skipped + self.iteration.index - self.iteration.first


class LoaderProgress:
    """The passes over one loader. One that was left in its first batch, unused, was a look at the data: not counted. Of a
    loader that is trained on, passes without a step are not either: its data was evaluated."""

    def __init__(self, loader: Loader, iterations: Iterations) -> None:
        self.loader = loader
        self.iterations = iterations
        self.watch = Watch(loader)
        self.passes = 0
        self.epoch = 0  # as scripts count: passes, unless they set it
        self.steps = 0  # batches handed out in passes that have ended
        self.trains = False  # whether these were trained on
        self.left: int | None = None  # after how many batches the latest of them was left, before its end
        self.cut: int | None = None  # the same, unless the one before was left there too: then it is a habit
        self.last = Iteration(None)  # the latest pass
        self.current: Pass | None = None
        self.resumption: Resumption | None = None
        self.resuming: Resuming | None = None  # of the latest `load_state`

    @property
    def iteration(self) -> Iteration | None:
        return None if self.current is None else self.current.iteration

    @property
    def latest_use(self) -> tuple[bool, int, bool]:
        """Orders loaders by what the training is about: trained on, how lately, being iterated."""
        iterations, iteration = self.iterations, self.iteration
        if self.resumption is not None:
            return self.resumption.position.trains, 0, True
        under_way = iteration is not None and iteration in iterations.stack
        if iteration is None or not under_way:
            return self.last.worked, self.last.work, False
        worked = iteration.worked or iteration.work != iterations.work
        return worked, iteration.work, not worked

    def iteration_of(self, source: Source) -> Iteration:
        """A new pass, which knows how the batches of earlier ones were used."""
        last = self.last
        return Iteration(source.total, source.pads, worked=last.worked, usual=last.usual, passed_over=last.passed_over)

    def enter(self, begun: Pass) -> None:
        """A pass is about to hand out its first batch."""
        if self.current is not None:
            self.leave(self.current.iteration, ended=False)
        self.current = begun

    def leave(self, iteration: Iteration, ended: bool) -> None:
        """Also called late, when an iterator that was left by `break` is collected."""
        if self.current is None or self.current.iteration is not iteration:
            return
        left, self.current = self.current, None
        worked = bool(iteration.index) and self.iterations.work != iteration.work
        if ended or worked or iteration.index > 1:
            trained = worked or iteration.trained > 0 or left.trained
            iteration.worked = iteration.worked or worked
            self.last = iteration
            self.epoch += 1
            self.iterations.fed = self.iterations.fed or trained
            self._count(left, trained, ended or (iteration.is_last and worked))
        iteration.batch = None

    def _count(self, left: Pass, trained: bool, whole: bool) -> None:
        if trained and not self.trains:
            self.trains, self.passes, self.steps = True, 0, 0
        if trained or not self.trains:
            self.passes += 1
            self.steps += left.done + left.rounds
            length = left.iteration.index if trained and not whole else None
            self.cut, self.left = None if length == self.left else length, length

    def position(self) -> Position:
        iterations = self.iterations
        if self.resumption is not None:
            return self.resumption.here()
        current = self.current
        if current is None or current.iteration not in iterations.stack or not current.iteration.index:
            return self._before_next_pass()
        iteration = current.iteration
        if self.is_evaluation(iteration):
            return self._before_next_pass()
        trains = iteration.worked or iterations.work != iteration.work
        unused = self._is_unused(iteration)
        rounds, keys = current.rounds - unused, iteration.recent
        held = Held(iteration.batch, iteration.share) if unused and is_plain(iteration.batch) else None
        if unused and held is None:
            keys = keys[:-1]
        in_step = self.loader.num_workers == 0 and not isinstance(self.loader.dataset, IterableDataset)
        begins = trains and not self.trains
        return Position(
            0 if begins else self.passes,
            0 if begins else self.steps,
            current.start,
            under_way=True,
            before=current.before,
            done=current.done,
            rounds=rounds,
            ended=iteration.is_last and not unused,
            total=iteration.total,
            trains=trains,
            usual=iteration.usual,
            held=held,
            seen=Seen(len(keys), digest_of(keys)),
            # Where nothing is read ahead: the order's generators are where the batches are, those of the data too.
            now=own_states(self.loader) if in_step and (held is not None or not unused) else None,
            passes_over=iteration.ahead != 0,
        )

    def mark(self, position: Position, numbers: tuple[int, int] | None) -> Mark | None:
        """The last batch that this process has used; `numbers` are its own among those of a round, and their number."""
        current = self.current
        if current is None or not position.under_way or self.resumption is not None:
            return position.mark
        used = current.iteration.recent[: -1 if position.rounds < current.rounds else None]
        if numbers is None or not used or not position.rounds or position.ended:
            return current.iteration.mark  # type: ignore[no-any-return]
        own, per_round = numbers
        return Mark(position.before + (position.rounds - 1) * per_round + own, digest_of(used[-1:]))

    def _before_next_pass(self) -> Position:
        start = Start(moment_of(self.loader), self.watch.values())
        return Position(self.passes, self.steps, start, trains=self.trains)

    def is_evaluation(self, iteration: Iteration) -> bool:
        """Whether it goes on without a step inside a loop that trains: nobody takes it up in the middle."""
        iterations = self.iterations
        outer = iterations.stack[: iterations.stack.index(iteration)]
        idle = iteration.ahead == iteration.index - 1 > 0 and iterations.work == iteration.work
        return idle and any(one.worked or one.work != iterations.work for one in outer)

    def _is_unused(self, iteration: Iteration) -> bool:
        """Whether the batch in hand was not worked on; one that is half through cannot be saved."""
        iterations = self.iterations
        number, work = iteration.index, iterations.work - iteration.work
        if work:
            if work < iteration.usual or (not iteration.worked and iterations.due):
                raise CheckpointError(
                    f"save_state() came while batch {number} was being trained on: "
                    + ("its gradients wait for optimizer.step()" if iterations.due else "some of its steps are missing")
                    + "; save before its forward pass or after its last step"
                )
            return False
        if not iteration.worked and (iteration.passed_over or not iterations.trains):
            return False  # a loop that trains nothing, such as an evaluation: what is handed out is used
        counter = iterations.counter
        if not torch.equal(torch.get_rng_state(), iterations.drawn) or (  # type: ignore[arg-type]
            counter is not None and counter._version != iterations.counted
        ):
            raise CheckpointError(
                f"save_state() came after batch {number} was taken up (its forward pass ran, or random numbers were "
                "drawn for it) and before it was trained on; save before its forward pass or after its last step"
            )
        return True


def is_plain(batch: Batch) -> bool:
    """Whether a checkpoint brings the batch back as it was."""
    if type(batch) in (list, tuple):
        return all(map(is_plain, batch))
    if type(batch) is dict:
        return all(type(key) is str and is_plain(value) for key, value in batch.items())
    return batch is None or type(batch) in (torch.Tensor, bool, int, float, str, bytes)
