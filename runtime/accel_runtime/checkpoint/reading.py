"""Loading: choose a checkpoint, verify all of it, and hand out its parts decoded. Nothing is changed here."""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

from accel_runtime.checkpoint.council import Council
from accel_runtime.checkpoint.encoding import State, decoded
from accel_runtime.checkpoint.folders import automatic_folders, standing
from accel_runtime.checkpoint.manifest import NAME, Manifest, damage_of, read_manifest
from accel_runtime.checkpoint.shard_index import NAME as SHARDS
from accel_runtime.checkpoint.shard_index import Index, read_index
from accel_runtime.checkpoint.tensors import read_tensors, tensor_sizes
from accel_runtime.errors import CheckpointError

NOTHING: Mapping[str, Tensor] = MappingProxyType({})
# Of a state, its tensors that a tensor of this run is like, each with that one.
Pairs = Callable[[State], Iterable[tuple[Tensor, Tensor]]]


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that was found whole."""

    folder: Path
    manifest: Manifest
    allow_pickle: bool

    def has(self, part: str) -> bool:
        return bool({f"{part}.safetensors", f"{part}.json"} & set(self.manifest.names()))

    def path(self, part: str) -> Path:
        tensors = f"{part}.safetensors"
        return self.folder / (tensors if tensors in self.manifest.names() else f"{part}.json")

    def weights(self, part: str, like: Mapping[str, Tensor] = NOTHING) -> dict[str, State]:
        """A model's state; a tensor that is sharded in `like` comes as a shard."""
        others = self._decoded(part, {}) if f"{part}.json" in self.manifest.names() else {}
        return {**self._tensors(part, like), **others}

    def state(self, part: str, pairs: Pairs | None = None) -> State:
        """Any other state. Tensors come whole, or as those of this run are with which `pairs` puts them together."""
        if pairs is None:
            return self._decoded(part, self._tensors(part))
        stand_ins = self._stand_ins(part)
        names = {id(tensor): name for name, tensor in stand_ins.items()}
        like = {names[id(tensor)]: own for tensor, own in pairs(self._decoded(part, stand_ins))}
        return self._decoded(part, self._tensors(part, like))

    def _decoded(self, part: str, tensors: dict[str, Tensor]) -> State:
        path = self.folder / f"{part}.json"
        try:
            return decoded(json.loads(path.read_bytes()), tensors, str(path), self.allow_pickle)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise CheckpointError(f"{path} does not hold a state as save_state writes it ({reason})") from error

    def _tensors(self, part: str, like: Mapping[str, Tensor] = NOTHING) -> dict[str, Tensor]:
        name = f"{part}.safetensors"
        if name not in self.manifest.names():
            return self._shards(part, like)
        tensors = read_tensors(self.folder / name)
        if not like:
            return tensors
        from accel_runtime.shards import shard_like

        return {name: shard_like(tensor, like.get(name)) for name, tensor in tensors.items()}

    def _shards(self, part: str, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if not (index := self._index(part)):
            return {}
        # Imported here: it takes a second, and most checkpoints have no shards.
        from accel_runtime.checkpoint.shard_reading import read_shards

        return read_shards(self.folder, index, part, like)

    def _stand_ins(self, part: str) -> dict[str, Tensor]:
        """Tensors of the right shapes that take no memory."""
        sizes = (
            tensor_sizes(self.folder / f"{part}.safetensors") if f"{part}.safetensors" in self.manifest.names() else {}
        )
        sizes |= {name.removeprefix(f"{part}/"): one.size for name, one in self._index(part).items()}
        return {name: torch.empty(()).expand(size) for name, size in sizes.items()}

    def _index(self, part: str) -> Index:
        index = read_index(self.folder) if self.has(SHARDS) else {}
        return {name: one for name, one in index.items() if name.startswith(f"{part}/")}


def open_checkpoint(folder: Path, council: Council, allow_pickle: bool = False) -> Saved:
    """The checkpoint, verified by all processes together; each digests its share of the files."""
    folder = standing(folder)
    manifest = council.together(lambda: read_manifest(folder))
    mine = manifest.files[council.world.local_rank :: council.world.local_size]
    # Digesting releases the interpreter, so threads share the cores.
    with ThreadPoolExecutor() as threads:
        own = [damage for damage in threads.map(functools.partial(damage_of, folder), mine) if damage]
    damages = council.hear(own)
    if found := [damage for some in damages for damage in some]:
        raise CheckpointError(found[0])
    return Saved(folder, manifest, allow_pickle)


def open_latest(parent: Path, council: Council, allow_pickle: bool = False) -> Saved | None:
    """The newest numbered checkpoint that is whole; what is passed over is said. None when there is none at all."""
    folders = council.follow(candidates(parent))
    reasons = []
    for folder in reversed(folders):
        try:
            saved = open_checkpoint(folder, council, allow_pickle)
        except CheckpointError as error:
            reasons.append(str(error))
            continue
        if reasons and council.world.is_main:
            warnings.warn(f"{'; '.join(reasons)}. Loading {folder} instead", stacklevel=4)
        return saved
    if reasons:
        raise CheckpointError(f"no checkpoint in {parent} is whole: {'; '.join(reasons)}")
    return None


def candidates(parent: Path) -> list[Path]:
    """Checkpoints below a folder, oldest first: the numbered ones, or else those that have a manifest."""
    return automatic_folders(parent) or sorted(
        (path.parent for path in parent.glob(f"*/{NAME}")), key=lambda folder: (folder / NAME).stat().st_mtime_ns
    )
