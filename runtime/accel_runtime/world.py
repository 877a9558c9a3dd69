"""Who this process is among the processes of the run, read once from what the launcher left in the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from accel_runtime.errors import WorldError


@dataclass(frozen=True, slots=True)
class World:
    """Ranks count from 0; `local` means on this machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    node_rank: int = 0
    launcher: str = "python"  # what started the processes: python, torchrun, slurm, mpi, ...

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def is_local_main(self) -> bool:
        return self.local_rank == 0

    @property
    def is_last(self) -> bool:
        return self.rank == self.size - 1


def world_from(environ: Mapping[str, str]) -> World:
    """The world described by the variables that torchrun (and everyone who follows it) sets."""
    if "RANK" not in environ or "WORLD_SIZE" not in environ:
        return World()
    rank, size = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
    local_rank = _number(environ, "LOCAL_RANK", rank)
    local_size = _number(environ, "LOCAL_WORLD_SIZE", size)
    if not 0 <= rank < size:
        raise WorldError(f"RANK={rank} is outside WORLD_SIZE={size}; the launcher must number ranks from 0")
    return World(rank, size, local_rank, local_size, _number(environ, "GROUP_RANK", 0), "torchrun")


def _number(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    value = environ.get(name)
    if value is None and default is not None:
        return default
    try:
        return int(value or "")
    except ValueError:
        raise WorldError(f"{name}={value!r} in the environment is not a number") from None
