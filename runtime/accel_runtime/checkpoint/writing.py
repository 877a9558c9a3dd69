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

from accel_runtime.checkpoint.encoding import Node, State, encoded
from accel_runtime.checkpoint.files import inside, opened
from accel_runtime.checkpoint.folders import make_staging, named, next_automatic, prune, put_in_number, put_in_place
from accel_runtime.checkpoint.manifest import Manifest, damage_of, write_manifest
from accel_runtime.checkpoint.process_group import CheckpointGroup
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
class Destination:
    """Where a checkpoint shall be. `folder` is the script's choice; None: the next number in `home`, from `first` on."""

    folder: str | os.PathLike[str] | None
    home: Path | None
    first: int
    keeps: int | None  # how many numbered checkpoints to keep
    each_node: bool

    def choose(self) -> Path:
        if self.folder is not None:
            return named(self.folder)
        assert self.home is not None
        return next_automatic(self.home, self.first)


@dataclass(frozen=True, slots=True)
class Draft:
    """A checkpoint that is being written. `leads` on the process that gives the folder its name."""

    target: Path
    staging: Path
    group: CheckpointGroup
    destination: Destination

    @property
    def leads(self) -> bool:
        world = self.group.world
        return world.is_local_main if self.destination.each_node else world.is_main

    @contextmanager
    def discarded_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if self.leads:
                shutil.rmtree(self.staging, ignore_errors=True)
            raise

    def put_in_place(self) -> Path:
        if self.destination.folder is not None or self.destination.each_node:
            return put_in_place(self.staging, self.target)
        return put_in_number(self.staging, self.target)


def begin(destination: Destination, parts: Iterable[Part], group: CheckpointGroup) -> Draft:
    """Makes the folder beside the target, with room for the parts of all processes."""
    total = group.total(sum(part.size for part in parts)) + ROOM_FOR_TEXT
    target, staging = group.from_main(lambda: make_staging(destination.choose, total))
    draft = Draft(target, staging, group, destination)
    if destination.each_node:
        group.together(lambda: _make_again(draft, total) if draft.leads and not group.world.is_main else None)
    return draft


def _make_again(draft: Draft, total: int) -> None:
    """On another machine, under the same name."""
    make_staging(lambda: draft.target, total)[1].rename(draft.staging)


def finish(draft: Draft, parts: Iterable[Part], manifest: Manifest) -> Path:
    """Writes this process's parts; when all have, the checkpoint gets its manifest and its name, which is returned."""
    with draft.discarded_on_error():
        own = draft.group.together(lambda: [file for part in parts for file in _write(draft.staging, part)])
        written = draft.group.gather(own)
        placed = draft.group.together(lambda: _commit(draft, written, manifest) if draft.leads else draft.target)
    keeps = draft.destination.keeps
    if keeps is not None:
        draft.group.together(lambda: prune(draft.target.parent, keeps) if draft.leads else None)
    return draft.group.broadcast(placed)


def _write(folder: Path, part: Part) -> list[Digested]:
    files = []
    if part.tensors or part.node is None:
        files.append(write_tensors(folder / f"{part.name}.safetensors", part.tensors))
    if part.node is not None:
        files.append(write_text(folder / f"{part.name}.json", json.dumps(part.node)))
    return files


def _commit(draft: Draft, written: list[list[Digested]], manifest: Manifest) -> Path:
    files = {file.name: file for part in written for file in part}
    here = {
        path.relative_to(draft.staging).as_posix(): path
        for path in draft.staging.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }
    if not draft.destination.each_node and (away := files.keys() - here.keys()):
        raise CheckpointError(
            f"{draft.staging / min(away)} was written by another machine and cannot be seen from this one; save to a "
            "shared folder, or use ProjectConfiguration(save_on_each_node=True)"
        )
    kept = [files[name] for name in sorted(files.keys() & here.keys())]
    added = [_settled(inside(draft.staging, name), name) for name in sorted(here.keys() - files.keys())]
    for file in kept:
        if here[file.name].stat().st_size != file.size:
            raise CheckpointError(damage_of(draft.staging, file) or f"{file.name} was changed while it was saved")
    write_manifest(draft.staging, replace(manifest, files=(*kept, *added), saved_at=time.time()))
    return draft.put_in_place()


def _settled(path: Path, name: str) -> Digested:
    """A file that a hook of the script has put into the folder."""
    with opened(path) as file:
        os.fsync(file.fileno())
    return replace(digest_of(path), name=name)
