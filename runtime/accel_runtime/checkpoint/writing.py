"""Saving in steps that a kill may interrupt anywhere: write beside, list the files, then take the name."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from accel_runtime.checkpoint.council import Council
from accel_runtime.checkpoint.encoding import Node, State, encoded
from accel_runtime.checkpoint.folders import WRITING, beside, make_staging, prune, put_in_place
from accel_runtime.checkpoint.manifest import Manifest, damage_of, write_manifest
from accel_runtime.checkpoint.tensors import Digested, digest_of, write_tensors, write_text
from accel_runtime.errors import CheckpointError

ROOM_FOR_TEXT = 1 << 16  # bytes of headers and manifest, beyond those of tensors


@dataclass(frozen=True, slots=True)
class Part:
    """One thing in a checkpoint: `name.json` with its tensors in `name.safetensors`; either may be missing."""

    name: str
    tensors: dict[str, Tensor]
    node: Node = None

    @property
    def size(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())


def part_of(name: str, state: State, allow_pickle: bool = False) -> Part:
    """The state of anything, encoded."""
    tensors: dict[str, Tensor] = {}
    node = encoded(state, tensors, f"the state of {name}", allow_pickle)
    return Part(name, tensors, node)


def part_of_model(name: str, weights: dict[str, State], allow_pickle: bool = False) -> Part:
    """Tensors under their own names, for any reader of safetensors; what a model adds to its state goes beside."""
    tensors = {key: value for key, value in weights.items() if isinstance(value, Tensor)}
    others = {key: value for key, value in weights.items() if key not in tensors}
    return Part(name, tensors, part_of(name, others, allow_pickle).node) if others else Part(name, tensors)


@dataclass(frozen=True, slots=True)
class Draft:
    """A checkpoint that is being written. `leads` on the process that gives the folder its name."""

    target: Path
    staging: Path
    council: Council
    each_node: bool
    keeps: int | None  # how many numbered checkpoints to keep

    @property
    def leads(self) -> bool:
        world = self.council.world
        return world.is_local_main if self.each_node else world.is_main

    @contextmanager
    def discarded_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if self.leads:
                shutil.rmtree(self.staging, ignore_errors=True)
            raise


def begin(target: Path, parts: Iterable[Part], council: Council, each_node: bool, keeps: int | None) -> Draft:
    """Makes the folder beside the target, with room for the parts of all processes."""
    staging = council.follow(beside(target, WRITING))
    total = sum(council.hear(sum(part.size for part in parts))) + ROOM_FOR_TEXT
    draft = Draft(target, staging, council, each_node, keeps)
    council.together(lambda: make_staging(staging, target, total) if draft.leads else None)
    return draft


def finish(draft: Draft, parts: Iterable[Part], manifest: Manifest) -> None:
    """Writes this process's parts; when all have, the checkpoint gets its manifest and its name."""
    with draft.discarded_on_error():
        own = draft.council.together(lambda: [file for part in parts for file in _write(draft.staging, part)])
        written = draft.council.hear(own)
        draft.council.together(lambda: _commit(draft, written, manifest) if draft.leads else None)
    if draft.leads and draft.keeps is not None:
        prune(draft.target.parent, draft.keeps)


def _write(folder: Path, part: Part) -> list[Digested]:
    files = []
    if part.tensors or part.node is None:
        files.append(write_tensors(folder / f"{part.name}.safetensors", part.tensors))
    if part.node is not None:
        files.append(write_text(folder / f"{part.name}.json", json.dumps(part.node)))
    return files


def _commit(draft: Draft, written: list[list[Digested]], manifest: Manifest) -> None:
    files = {file.name: file for part in written for file in part}
    here = {path.relative_to(draft.staging).as_posix(): path for path in draft.staging.rglob("*") if path.is_file()}
    if not draft.each_node and (away := files.keys() - here.keys()):
        raise CheckpointError(
            f"{draft.staging / min(away)} was written by another machine and cannot be seen from this one; save to a "
            "shared folder, or use ProjectConfiguration(save_on_each_node=True)"
        )
    kept = [files[name] for name in sorted(files.keys() & here.keys())]
    added = [_settled(here[name], name) for name in sorted(here.keys() - files.keys())]
    for file in kept:
        if here[file.name].stat().st_size != file.size:
            raise CheckpointError(damage_of(draft.staging, file) or f"{file.name} was changed while it was saved")
    write_manifest(draft.staging, replace(manifest, files=(*kept, *added), saved_at=time.time()))
    put_in_place(draft.staging, draft.target)


def _settled(path: Path, name: str) -> Digested:
    """A file that a hook of the script has put into the folder."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return replace(digest_of(path), name=name)
