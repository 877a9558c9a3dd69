"""A prepared scheduler: counts so that a schedule written for one process ends on time on many."""

from __future__ import annotations

import warnings
from typing import Any

from torch.optim.lr_scheduler import LRScheduler

from accel_runtime.accumulation import Accumulation
from accel_runtime.data.iteration import Iterations
from accel_runtime.optimizer import PreparedOptimizer
from accel_runtime.proxy import Unseen


class PreparedScheduler(Unseen):
    """Is the user's scheduler in every other respect; `scheduler` is the bare one.

    A step inside a loader's iteration counts `times`, for that many batches of the unsharded loader were used up.
    A step outside of it (an epoch has ended) or with a metric counts once.
    """

    _is_accelerate_prepared = True
    scheduler: LRScheduler
    optimizers: tuple[PreparedOptimizer, ...]  # a step that one of these left out does not count
    accumulation: Accumulation
    iterations: Iterations
    times: int
    with_optimizer: bool
    bounded: bool  # whether its length is fixed
    past_end = False

    def __init__(
        self,
        scheduler: LRScheduler,
        optimizers: tuple[PreparedOptimizer, ...],
        accumulation: Accumulation,
        iterations: Iterations,
        times: int = 1,
        with_optimizer: bool = True,
    ) -> None:
        super().__init__(scheduler)
        self.__dict__.update(
            scheduler=scheduler,
            optimizers=optimizers,
            accumulation=accumulation,
            iterations=iterations,
            times=times,
            with_optimizer=with_optimizer,
            bounded=hasattr(scheduler, "total_steps"),
        )

    def step(self, *metric: Any, **named: Any) -> None:
        """Steps when the optimizer did."""
        if metric or named or not self.with_optimizer:
            self.scheduler.step(*metric, **named)
            return
        if self.accumulation.holding:
            return
        for optimizer in self.optimizers:  # not any(): a generator costs calls at every step
            if optimizer.step_was_skipped:
                return
        if not self.bounded and (self.times == 1 or not self.iterations.stack):
            self.scheduler.step()
        else:
            for _ in range(self.times if self.iterations.stack else 1):
                self._step_within_total()

    def _step_within_total(self) -> None:
        # The last round may count batches that do not exist, and a schedule of fixed length refuses to go past its end.
        if not self.bounded or self.scheduler.last_epoch < self.scheduler.total_steps:  # type: ignore[attr-defined]
            self.scheduler.step()
        elif self.times == 1 and not self.past_end:
            self.__dict__["past_end"] = True
            warnings.warn(
                f"{type(self.scheduler).__name__} is made for {self.total_steps} steps and is asked for more; the learning "
                "rate stays where it ended",
                stacklevel=3,
            )


# The name by which scripts for Accelerate ask whether a scheduler was prepared.
AcceleratedScheduler = PreparedScheduler
