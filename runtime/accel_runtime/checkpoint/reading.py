"""Loading: choose a checkpoint, verify all of it, and hand out its parts decoded. Nothing is changed here."""

from __future__ import annotations

import functools
import json
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from accel_runtime.checkpoint.council import Council
from accel_runtime.checkpoint.encoding import State, decoded
from accel_runtime.checkpoint.folders import automatic_folders, standing
from accel_runtime.checkpoint.manifest import NAME, Manifest, damage_of, read_manifest
from accel_runtime.checkpoint.tensors import read_tensors
from accel_runtime.errors import CheckpointError


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

    def weights(self, part: str) -> dict[str, State]:
        """A model's state."""
        others = self.state(part, {}) if f"{part}.json" in self.manifest.names() else {}
        return {**self._tensors(part), **others}

    def state(self, part: str, tensors: dict[str, Tensor] | None = None) -> State:
        path = self.folder / f"{part}.json"
        tensors = self._tensors(part) if tensors is None else tensors
        try:
            return decoded(json.loads(path.read_bytes()), tensors, str(path), self.allow_pickle)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise CheckpointError(f"{path} does not hold a state as save_state writes it ({reason})") from error

    def _tensors(self, part: str) -> dict[str, Tensor]:
        name = f"{part}.safetensors"
        return read_tensors(self.folder / name) if name in self.manifest.names() else {}


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
