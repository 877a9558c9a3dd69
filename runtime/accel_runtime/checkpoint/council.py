"""How the processes agree about a checkpoint: on a channel of their own, and failing together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch.distributed as dist

from accel_runtime.errors import AccelError, CheckpointError
from accel_runtime.world import World

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Council:
    """`group` is apart from the training's, so that a thread may use it meanwhile; None when there is one process."""

    world: World
    group: dist.ProcessGroup | None = None

    def hear(self, value: Any) -> list[Any]:
        """The value of every process, in the order of ranks."""
        if self.group is None:
            return [value]
        values: list[Any] = [None] * self.world.size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def follow(self, value: Result) -> Result:
        """The value that process 0 has."""
        return self.hear(value if self.world.is_main else None)[0]  # type: ignore[no-any-return]

    def together(self, work: Callable[[], Result]) -> Result:
        """What the work gives here. Where it fails on one process it fails on all, with the same sentence."""
        result: list[Result] = []
        problem = None
        try:
            result.append(work())
        except (AccelError, OSError) as error:
            problem = str(error)
        if said := [other for other in self.hear(problem) if other is not None]:
            raise CheckpointError(said[0])
        return result[0]


def council_of(world: World) -> Council:
    """Every process must come here."""
    return Council(world, dist.new_group(backend="gloo") if world.size > 1 else None)
