"""Loading: choose a checkpoint, verify all of it, and hand out its parts decoded. Nothing is changed here."""

from __future__ import annotations

import functools
import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

from accel_runtime.checkpoint.encoding import State, decoded
from accel_runtime.checkpoint.files import inside, read_text
from accel_runtime.checkpoint.folders import automatic_folders, location_of
from accel_runtime.checkpoint.manifest import NAME, Manifest, damage_of, read_manifest
from accel_runtime.checkpoint.owners import REPLACED, hidden_in
from accel_runtime.checkpoint.process_group import CheckpointGroup
from accel_runtime.checkpoint.shard_index import NAME as SHARDS
from accel_runtime.checkpoint.shard_index import Index, read_index
from accel_runtime.checkpoint.tensors import Digested, read_tensors, tensor_sizes
from accel_runtime.checkpoint.threads import in_threads
from accel_runtime.errors import CheckpointError
from accel_runtime.world import World

OWN = re.compile(r"(?:rank_|shards_(?!0\.))(\d{1,10})\.(?:json|safetensors)")
NOTHING: Mapping[str, Tensor] = MappingProxyType({})
# Of a state, its tensors that a tensor of this run is like, each with that one.
Pairs = Callable[[State], Iterable[tuple[Tensor, Tensor]]]


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that was found whole."""

    folder: Path
    manifest: Manifest
    names: frozenset[str]  # of its files
    shards: Mapping[str, Index]  # of each part that is sharded
    allow_pickle: bool

    def has(self, part: str) -> bool:
        return f"{part}.safetensors" in self.names or f"{part}.json" in self.names

    def path(self, part: str) -> Path:
        tensors = f"{part}.safetensors"
        return self.folder / (tensors if tensors in self.names else f"{part}.json")

    def weights(self, part: str, like: Mapping[str, Tensor] = NOTHING) -> dict[str, State]:
        """A model's state; a tensor that is sharded in `like` comes as a shard."""
        others = self._decoded(part, {}) if f"{part}.json" in self.names else {}
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
            return decoded(json.loads(read_text(inside(self.folder, path.name))), tensors, str(path), self.allow_pickle)
        except CheckpointError:
            raise
        # Whatever is wrong in there: somebody else may have written it.
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise CheckpointError(f"{path} does not hold a state as save_state writes it ({reason})") from error

    def _tensors(self, part: str, like: Mapping[str, Tensor] = NOTHING) -> dict[str, Tensor]:
        name = f"{part}.safetensors"
        if name not in self.names:
            return self._shards(part, like)
        tensors = read_tensors(inside(self.folder, name))
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
        sizes = tensor_sizes(inside(self.folder, f"{part}.safetensors")) if f"{part}.safetensors" in self.names else {}
        sizes |= {name.removeprefix(f"{part}/"): one.size for name, one in self._index(part).items()}
        return {name: torch.empty(()).expand(size) for name, size in sizes.items()}

    def _index(self, part: str) -> Index:
        return self.shards.get(part, {})


def open_checkpoint(folder: Path, group: CheckpointGroup, allow_pickle: bool = False) -> Saved:
    """The checkpoint, verified by all processes together."""
    folder = location_of(folder)
    manifest = group.together(lambda: read_manifest(folder))
    group.together(lambda: _verify(folder, digested_here(manifest, group.world)))
    shards = group.together(lambda: _shards_by_part(folder, manifest))
    return Saved(folder, manifest, frozenset(manifest.names()), shards, allow_pickle)


def digested_here(manifest: Manifest, world: World) -> list[Digested]:
    """What this process verifies: its own files, and of those that all read its share on this machine.

    On as many processes as have saved nobody reads the files of another; on any other number everybody may.
    """
    own, shared = [], []
    for file in manifest.files:
        rank = _rank_of(file.name) if manifest.processes == world.size else None
        if rank == world.rank:
            own.append(file)
        elif rank is None:
            shared.append(file)
    return own + shared[world.local_rank :: world.local_size]


def _rank_of(name: str) -> int | None:
    """The process that alone reads a file. Process 0 has written what is not sharded among its shards."""
    match = OWN.fullmatch(name)
    return int(match[1]) if match else None


def _verify(folder: Path, files: list[Digested]) -> None:
    # Digesting releases the interpreter, so threads share the cores.
    if damages := [damage for damage in in_threads(functools.partial(damage_of, folder), files) if damage]:
        raise CheckpointError(damages[0])


def _shards_by_part(folder: Path, manifest: Manifest) -> dict[str, Index]:
    parts: dict[str, Index] = {}
    if f"{SHARDS}.json" in manifest.names():
        for name, one in read_index(folder, manifest.processes).items():
            parts.setdefault(name.partition("/")[0], {})[name] = one
    return parts


def open_latest(parent: Path, group: CheckpointGroup, allow_pickle: bool = False) -> Saved | None:
    """The newest numbered checkpoint that is whole; what is passed over is said. None when none is whole."""
    folders = group.from_main(lambda: candidates(parent))
    reasons = []
    for folder in reversed(folders):
        try:
            saved = open_checkpoint(folder, group, allow_pickle)
        except CheckpointError as error:
            reasons.append(str(error))
            continue
        if reasons and group.world.is_main:
            warnings.warn(f"{'; '.join(reasons)}. Loading {folder} instead", stacklevel=4)
        return saved
    if reasons:
        raise CheckpointError(f"no checkpoint in {parent} is whole: {'; '.join(reasons)}")
    return None


def candidates(parent: Path) -> list[Path]:
    """Checkpoints below a folder, oldest first: the numbered ones, or else those that have a manifest."""
    if numbered := automatic_folders(parent):
        return numbered
    aside = {one.home for one in hidden_in(parent) if one.purpose == REPLACED and not one.home.exists()}
    shown = {path.parent for path in parent.glob(f"*/{NAME}") if not path.parent.name.startswith(".")}
    return sorted(shown | aside, key=lambda folder: (_saved_at(location_of(folder)), folder.name))


def _saved_at(folder: Path) -> float:
    """When it was saved; the time of its file tells only when that was copied."""
    try:
        return read_manifest(folder).saved_at
    except CheckpointError:
        return (folder / NAME).lstat().st_mtime
