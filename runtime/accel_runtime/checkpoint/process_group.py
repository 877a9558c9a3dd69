"""How the processes agree about a checkpoint: in a process group of its own, and failing together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from accel_runtime.errors import AccelError, CheckpointError
from accel_runtime.world import World

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class CheckpointGroup:
    """`handle` is apart from the training's group, so that a thread may use it meanwhile; None: there is one process."""

    world: World
    handle: dist.ProcessGroup | None = None

    def gather(self, value: Any) -> list[Any]:
        """The value of every process, in the order of ranks."""
        if self.handle is None:
            return [value]
        values: list[Any] = [None] * self.world.size
        dist.all_gather_object(values, value, group=self.handle)
        return values

    def broadcast(self, value: Result) -> Result:
        """The value that process 0 has."""
        if self.handle is None:
            return value
        values = [value if self.world.is_main else None]
        dist.broadcast_object_list(values, src=0, group=self.handle)
        return values[0]  # type: ignore[return-value]

    def total(self, number: int) -> int:
        """The sum over all processes."""
        return self._reduced(number, dist.ReduceOp.SUM)

    def together(self, work: Callable[[], Result]) -> Result:
        """What the work gives here. Where it fails on one process it fails on all, with the same sentence."""
        result: list[Result] = []
        failure: Exception | None = None
        try:
            result.append(work())
        # Whatever a script's own state or hook raises: who does not hear of it waits for ever.
        except Exception as error:
            failure = error
        if not self._reduced(failure is not None, dist.ReduceOp.MAX):
            return result[0]
        told = self.gather(None if failure is None else self._sentence(failure))
        raise CheckpointError(next(sentence for sentence in told if sentence is not None)) from failure

    def from_main(self, work: Callable[[], Result]) -> Result:
        """What the work gives on process 0, which alone does it; where it fails, it fails on all."""
        return self.broadcast(self.together(lambda: work() if self.world.is_main else None))  # type: ignore[return-value]

    def _sentence(self, failure: Exception) -> str:
        if isinstance(failure, (AccelError, OSError)):
            return str(failure)
        where = f" on rank {self.world.rank}" if self.world.size > 1 else ""
        return f"{type(failure).__name__}{where}: {failure}"

    def _reduced(self, number: int, how: Any) -> int:
        # Any: torch's types know no kinds of reduction.
        if self.handle is None:
            return number
        value = torch.tensor([number], dtype=torch.int64)
        dist.all_reduce(value, op=how, group=self.handle)
        return int(value.item())


def checkpoint_group(world: World) -> CheckpointGroup:
    """Every process must come here."""
    return CheckpointGroup(world, dist.new_group(backend="gloo") if world.size > 1 else None)
