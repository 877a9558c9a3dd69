"""A prepared scheduler: counts so that a schedule written for one process ends on time on many."""

from __future__ import annotations

from typing import Any

from torch.optim.lr_scheduler import LRScheduler

from accel_runtime.accumulation import Accumulation
from accel_runtime.data.iteration import Iterations
from accel_runtime.optimizer import PreparedOptimizer
from accel_runtime.proxy import Proxy


class PreparedScheduler(Proxy):
    """Is the user's scheduler in every other respect; `scheduler` is the bare one.

    A step inside a loader's iteration counts `times`, for that many batches of the unsharded loader were used up.
    A step outside of it (an epoch has ended) or with a metric counts once.
    """

    _is_accelerate_prepared = True
    scheduler: LRScheduler
    optimizers: tuple[PreparedOptimizer, ...]
    accumulation: Accumulation
    iterations: Iterations
    times: int
    with_optimizer: bool

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
        if self.times == 1 or not self.iterations.stack:
            self.scheduler.step()
        else:
            for _ in range(self.times):
                self._step_within_total()

    def _step_within_total(self) -> None:
        # The last round may count batches that do not exist, and a schedule of fixed length refuses to go past its end.
        total = getattr(self.scheduler, "total_steps", None)
        if total is None or self.scheduler.last_epoch < total:
            self.scheduler.step()


# The name by which scripts for Accelerate ask whether a scheduler was prepared.
AcceleratedScheduler = PreparedScheduler
