"""In debug mode, before each collective: do all processes mean the same one? If not, both places are named."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

import torch
import torch.distributed as dist

from accel_runtime.collectives import Collectives
from accel_runtime.errors import UsageError
from accel_runtime.watchdog import place_of
from accel_runtime.world import World

COLLECTIVES = (
    "barrier",
    "gather",
    "gather_rows",
    "gather_numbers",
    "gather_objects",
    "reduce",
    "broadcast",
    "broadcast_objects",
    "scatter_objects",
    "pad",
)
PATIENCE = 30.0  # seconds that another process may take to come


@dataclass(frozen=True, slots=True)
class Agreement:
    """Through the store in which the processes found each other, so that nothing blocks that cannot be left."""

    world: World
    store: Any  # torch.distributed.Store, which mypy cannot see
    patience: float = PATIENCE
    name: str = "accel/collective"  # of what these processes say: several Accelerators have one store
    calls: count[int] = field(default_factory=count)

    @classmethod
    def of_group(cls, world: World) -> Agreement:
        """One more among the processes of the group that was joined; all of them make theirs in the same order."""
        # Any: torch has no public name for the store in which the processes met.
        c10d: Any = dist.distributed_c10d
        store = c10d._get_default_store()
        return cls(world, store, name=f"accel/collective/{store.add(f'accel/agreements/{world.rank}', 1)}")

    def check(self, collective: str) -> None:
        """Every process says which collective it enters and from where; who differs is named."""
        number = next(self.calls)
        if number > 1:
            # Who is here has heard all of the call before, so nobody looks at the one before that again.
            self.store.delete_key(self._key(number - 2, self.world.rank))
        place = place_of(sys._getframe())
        mine = f"{collective} at {place.line if place else 'an unknown place'}"
        self.store.set(self._key(number, self.world.rank), mine)
        for rank in range(self.world.size):
            other = self._heard(number, rank, mine)
            if other.split(" at ")[0] != collective:
                raise UsageError(
                    f"rank {self.world.rank} is in {mine} while rank {rank} is in {other}; every process must call "
                    "the same collectives in the same order, so none may stand under a condition on the rank"
                )

    def _heard(self, number: int, rank: int, mine: str) -> str:
        key = self._key(number, rank)
        try:
            self.store.wait([key], timedelta(seconds=self.patience))
        except dist.DistError:
            raise UsageError(
                f"rank {self.world.rank} is in {mine} and rank {rank} has not come there in {self.patience:.0f} s; it "
                f"was last in {self._last(number, rank)}. Did it leave the loop earlier, or is the call under a "
                "condition on the rank?"
            ) from None
        return str(self.store.get(key).decode())

    def _last(self, number: int, rank: int) -> str:
        if number == 0:
            return "no collective yet"
        return str(self.store.get(self._key(number - 1, rank)).decode())

    def _key(self, number: int, rank: int) -> str:
        return f"{self.name}/{number}/{rank}"


class CheckedCollectives(Collectives):
    """Collectives that are entered only when all processes mean the same one."""

    def __init__(self, world: World, device: torch.device, agreement: Agreement) -> None:
        super().__init__(world, device)
        object.__setattr__(self, "agreement", agreement)

    def announce(self, name: str) -> None:
        agreement: Agreement = self.__dict__["agreement"]
        agreement.check(name)
        super().announce(name)


def _checked(name: str) -> Callable[..., Any]:
    plain = getattr(Collectives, name)

    @functools.wraps(plain)
    def checked(self: CheckedCollectives, *arguments: Any, **named: Any) -> Any:
        agreement: Agreement = self.__dict__["agreement"]
        agreement.check(name)
        return plain(self, *arguments, **named)

    return checked


for _name in COLLECTIVES:
    setattr(CheckedCollectives, _name, _checked(_name))
