"""Where the pieces of sharded tensors lie in a checkpoint: what torch calls metadata and pickles, here as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from accel_runtime.errors import CheckpointError

NAME = "shards"


class Piece(msgspec.Struct, frozen=True):
    """A block of a tensor, in the safetensors file of that name."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str


class Sharded(msgspec.Struct, frozen=True):
    """One tensor of the run."""

    dtype: str
    size: tuple[int, ...]
    pieces: tuple[Piece, ...]


Index = dict[str, Sharded]  # by the name of the part, a slash, and the tensor's name in it


def piece_name(tensor: str, offsets: tuple[int, ...]) -> str:
    """Under which name a file holds a piece."""
    return f"{tensor}@{','.join(map(str, offsets))}"


def shards_of(rank: int) -> str:
    return f"{NAME}_{rank}"


def read_index(folder: Path) -> Index:
    path = folder / f"{NAME}.json"
    try:
        return msgspec.convert(json.loads(path.read_bytes()), Index)
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{path} does not say where shards lie as save_state writes it ({error})") from error
