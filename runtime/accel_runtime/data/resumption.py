"""A pass that another run began, and this one goes on with: from where it stood, or from its beginning."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from accel_runtime.data.chance import global_states, restore_global, restore_own
from accel_runtime.data.drawing import RECENT, Check, described, differs, digest_of
from accel_runtime.data.iteration import Batch, Iteration, Iterations, Loader, Pairs
from accel_runtime.data.source import Source
from accel_runtime.errors import CheckpointError

if TYPE_CHECKING:
    from accel_runtime.data.progress import Position


class Resuming:
    """What all loaders have to do with one call of `load_state`.

    The script asks to go on in the middle of an epoch: by starting its loop from the epoch or the step that `load_state`
    returned, or by a setting. Otherwise it is one that counts and skips by itself, and gets the epoch from its beginning.
    """

    def __init__(self, processes: int, same_world: bool, stateful: bool, restore: Callable[[], None]) -> None:
        self.processes = processes  # that saved
        self.same_world = same_world
        self.from_epoch = False
        self.from_step = stateful
        self._restore: Callable[[], None] | None = restore

    def leave_random(self) -> None:
        """From now on the generators are where the script has brought them."""
        self._restore = None

    def restore_random(self) -> None:
        """Sets the generators of the run, for the first loader that is where it stood: the others come beside it."""
        restore, self._restore = self._restore, None
        if restore is not None:
            restore()


@dataclass(frozen=True, slots=True)
class Resumption:
    """Its `iteration` exists beforehand: what counts micro-steps refers to it."""

    loader: Loader
    position: Position
    resuming: Resuming
    batches_per_round: int
    batches_per_round_then: int
    iteration: Iteration

    @property
    def before(self) -> int:
        """Batches of the script's own loader that other numbers of processes have used up."""
        rounds = 0 if self.resuming.same_world else self.position.rounds
        return self.position.before + rounds * self.batches_per_round_then

    def here(self) -> Position:
        """The position in the terms of this run."""
        if self.resuming.same_world:
            return self.position
        done = self.position.done + self.position.rounds
        return replace(
            self.position, before=self.before, done=done, rounds=0, held=None, seen=None, total=None, now=None
        )

    @property
    def batch(self) -> int:
        """How many batches of this epoch each process would have used, had this run begun it."""
        here = self.here()
        return -(-here.before // self.batches_per_round) + here.rounds

    @property
    def check(self) -> Check | None:
        mark = self.position.mark
        return None if mark is None else Check(mark, described(self.loader))

    def begins_anew(self, skipped: int, sized: bool) -> bool:
        """Whether the pass was at its end, and the script means the next one: it has divided its steps by the length."""
        return self.position.ended and sized and not skipped and not self.resuming.from_epoch

    def goes_on(self, skipped: int) -> bool:
        """Whether the next batch is the one at which the other run stood."""
        if skipped:
            return skipped in (self.batch, self.position.before // self.batches_per_round_then + self.position.rounds)
        return self.resuming.from_epoch or self.resuming.from_step

    def pairs(self, source: Source, skipped: int, goes_on: bool) -> tuple[Pairs, Source]:
        """The rest of the pass, or all of it without what is skipped. What its order draws is drawn here, and changes no
        generator of the run."""
        own = global_states()
        if goes_on:
            pairs, source, index = self._from_position(source)
            restore_global(own)
            self.arrive()
        else:
            self._announce(skipped)
            if not self.resuming.same_world and self.check is not None:
                source = source.beginning(0, self.check)
            pairs, left_out = source.resumed(skipped, self.position.start)
            restore_global(own)
            index, self.iteration.recent = skipped, tuple(left_out)
        whole = source.total
        self.iteration.index = index
        self.iteration.total = None if whole is None else self.iteration.first + whole
        if whole is None and self.resuming.same_world:
            self.iteration.total = self.position.total
        self.iteration.pads = source.pads
        self.iteration.worked, self.iteration.usual = self.position.trains, self.position.usual
        self.iteration.mark = self.position.mark
        return pairs, source

    def arrive(self) -> None:
        """Sets the generators as they were where the other run stood."""
        if self.resuming.same_world and self.position.now is not None:
            restore_own(self.position.now, self.loader)
        self.resuming.restore_random()

    def _from_position(self, source: Source) -> tuple[Pairs, Source, int]:
        here = self.here()
        if here.before:
            source = source.beginning(here.before, self.check)
        taken = here.rounds + (here.held is not None)
        pairs, left_out = source.resumed(taken, here.start)
        check_seen(here, left_out, self.loader)
        self.iteration.first = here.before // self.batches_per_round
        self.iteration.recent = tuple(left_out)
        return pairs, source, self.iteration.first + here.rounds

    def _announce(self, skipped: int) -> None:
        if skipped > self.batch:
            _warn(
                f"skip_first_batches leaves out {skipped} batches, and the checkpoint was saved after {self.batch} of "
                f"this epoch: {skipped - self.batch} will not be trained on"
            )


class Replay:
    """The batches of a pass that another run began, until they are past the point where that run stood."""

    def __init__(self, resumption: Resumption, goes_on: bool, iterations: Iterations) -> None:
        self.resumption = resumption
        self.here = resumption.here()
        self.until = resumption.batch
        self.index = resumption.iteration.index
        self.goes_on = goes_on
        self.iterations = iterations
        self.work = iterations.work

    def followed(self, pairs: Pairs, placed: Callable[[Batch], Batch]) -> Pairs:
        """`placed` brings a batch that was kept to the device."""
        held = self.here.held
        kept = None if held is None else (placed(held.batch), held.share)
        return self._rest(pairs, kept) if self.goes_on else self._again(pairs, kept)

    @property
    def untouched(self) -> bool:
        """Whether nothing was trained since the pass began."""
        return self.iterations.work == self.work

    def _rest(self, pairs: Pairs, kept: tuple[Batch, Any] | None) -> Pairs:
        iteration = self.resumption.iteration
        if kept is None:
            first = next(pairs, None)
        else:
            # It is handed out, and so counted, again.
            *recent, key = iteration.recent
            iteration.recent, first = tuple(recent), (*kept, key)
        if first is None:
            return
        yield first
        if self.untouched and self.here.trains and not self.here.passes_over:
            _warn(
                f"load_state went on after batch {self.until} of the epoch, and the script passes over the next one: "
                "batches that it skips by hand are never seen. Skip with skip_first_batches, which counts from the "
                "beginning of the epoch, or do not skip"
            )
        yield from pairs

    def _again(self, pairs: Pairs, kept: tuple[Batch, Any] | None) -> Pairs:
        keys: deque[Any] = deque(self.resumption.iteration.recent, maxlen=RECENT)
        for number in range(self.index + 1, self.until + 2):
            if not self.untouched:
                _warn(
                    f"the epoch begins again though the checkpoint was saved after {self.until} of its batches, so "
                    f"{self.until - self.index} of them are trained on twice, as with Accelerate. To go on in the "
                    "middle, start the loop from the epoch that load_state returns, or skip them with skip_first_batches"
                )
                break
            arrives = number == self.until + 1
            if arrives and kept is None:
                self.resumption.arrive()
            pair = next(pairs, None)
            if pair is None:
                return
            keys.append(pair[2])
            if number == self.until + (kept is not None) and self.resumption.resuming.same_world:
                check_seen(self.here, keys, self.resumption.loader)
            if arrives and kept is not None:
                self.resumption.arrive()
                pair = (*kept, pair[2])
            yield pair
        yield from pairs


def check_seen(position: Position, keys: Iterable[Any], loader: Loader) -> None:
    """Refuses to go on with other data than the run that saved would have had."""
    seen = position.seen
    if seen is None:
        return
    last = list(keys)[-seen.count :] if seen.count else []
    if digest_of(last) != seen.digest:
        raise CheckpointError(differs(described(loader)))


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=4)
