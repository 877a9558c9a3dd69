"""Checkpoints: the state of a run in a folder that is there whole or not at all."""

from __future__ import annotations

import functools
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accel_runtime.checkpoint.background import Background
from accel_runtime.checkpoint.council import Council, council_of
from accel_runtime.checkpoint.folders import next_automatic, number_of
from accel_runtime.checkpoint.loaded import Loaded, check_kind, check_model, check_number, check_optimizer
from accel_runtime.checkpoint.manifest import Manifest
from accel_runtime.checkpoint.own_format import loaded_from
from accel_runtime.checkpoint.peer_format import is_of_peer, loaded_from_peer
from accel_runtime.checkpoint.reading import Saved, open_checkpoint, open_latest
from accel_runtime.checkpoint.run_state import RunState, model_parts
from accel_runtime.checkpoint.writing import Part, begin, finish
from accel_runtime.configuration import ProjectConfiguration
from accel_runtime.errors import CheckpointError, UsageError

LATEST = "latest"
Folder = str | os.PathLike[str] | None


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a loaded run stands: the epoch, the steps since the first one, and the batches of this epoch."""

    folder: Path
    epoch: int
    step: int
    batch: int


class Checkpoints:
    """Saves and loads the state of one Accelerator."""

    def __init__(self, state: RunState, project: ProjectConfiguration) -> None:
        self.state = state
        self.project = project
        self.background = Background()

    @functools.cached_property
    def council(self) -> Council:
        return council_of(self.state.session.world)

    def save(self, folder: Folder, allow_pickle: bool = False, wait: bool = True) -> Path:
        """Writes the state; every process must come here. Returns where it stands now, or soon without `wait`."""
        self.background.settle()
        target, weights, optimizers = self._target(folder), self.state.weights(), self.state.optimizer_states()
        own, shared = self.council.together(
            lambda: (self.state.own_part(), self._shared_parts(optimizers, allow_pickle))
        )
        parts = [own, *self._written_here(weights, shared, allow_pickle)]
        draft = begin(target, parts, self.council, self.project.save_on_each_node, self._keeps(folder))
        if self.state.registry.before_save.all:
            # Hooks may write files of their own into the folder, and take out weights that they have saved.
            with draft.discarded_on_error():
                self.state.registry.before_save.run(self.state.prepared.models, weights, str(draft.staging))
                parts = [own, *self._written_here(weights, shared, allow_pickle)]
        manifest = self._manifest()
        if wait:
            finish(draft, parts, manifest)
        else:
            copies = self.background.copied(parts)
            self.background.start(lambda: finish(draft, copies, manifest))
        self.project.iteration = max(self.project.iteration, number_of(target) + 1)
        return target

    def load(self, folder: Folder, missing_ok: bool = False, allow_pickle: bool = False) -> Resumed | None:
        """Puts a state back, after all of it was verified and found to fit."""
        self.background.settle()
        loaded = self._loaded(folder, allow_pickle)
        if loaded is None:
            if missing_ok:
                return None
            raise CheckpointError(f"there is no checkpoint in {self._home}; pass missing_ok=True to begin without one")
        models = list(self.state.prepared.models)
        self.state.registry.before_load.run(models, str(loaded.folder))
        self.council.together(lambda: self._check(loaded, models))
        self.state.restore(loaded, models)
        return Resumed(loaded.folder, loaded.epoch, loaded.step, loaded.batch)

    def _loaded(self, folder: Folder, allow_pickle: bool) -> Loaded | None:
        world = self.state.session.world
        if folder is not None and folder != LATEST:
            path = Path(folder)
            if self.council.follow(is_of_peer(path)):
                if self._shards:
                    raise CheckpointError(
                        f"{path} is a checkpoint of Accelerate, which sharded runs do not read; load it with strategy ddp "
                        "and save it again"
                    )
                return self.council.together(lambda: loaded_from_peer(path, world))
            saved: Saved | None = open_checkpoint(path, self.council, allow_pickle)
        else:
            saved = open_latest(self._home, self.council, allow_pickle)
        if saved is None:
            return None
        return self.council.together(lambda: loaded_from(saved, world, self.state.likeness()))

    def _check(self, loaded: Loaded, models: list[Any]) -> None:
        prepared, registry, strategy = self.state.prepared, self.state.registry, self.state.session.strategy
        check_number(loaded, loaded.models, len(models), "model", "prepare")
        check_number(loaded, loaded.optimizers, len(self.state.own_optimizers), "optimizer", "prepare")
        check_number(loaded, loaded.schedulers, len(prepared.schedulers), "scheduler", "prepare")
        check_number(loaded, loaded.objects, len(registry.objects), "registered object", "register")
        for kept, model in zip(loaded.models, models):
            check_model(kept, type(strategy.unwrap(model)).__name__, strategy.shapes(model))
        for kept, optimizer in zip(loaded.optimizers, self.state.own_optimizers):
            check_optimizer(kept, optimizer.optimizer, strategy.group_sizes(optimizer.optimizer))
        if loaded.own_states is not None:
            strategy.check_own_state(loaded.own_states)
        for kept, scheduler in zip(loaded.schedulers, prepared.schedulers):
            check_kind(kept, scheduler.scheduler)
        if loaded.random is None and loaded.processes == self.state.session.world.size:
            warnings.warn(f"{loaded.folder} has no random states of this process; they stay as they are", stacklevel=5)

    def _manifest(self) -> Manifest:
        epoch, step, batch = self.state.standing()
        return Manifest(step, epoch, batch, self.state.session.world.size, time.time(), ())

    @property
    def _writes_shared(self) -> bool:
        world = self.state.session.world
        return world.is_local_main if self.project.save_on_each_node else world.is_main

    @property
    def _shards(self) -> bool:
        return self.state.session.strategy.shards

    def _shared_parts(self, optimizers: list[dict[str, Any]], allow_pickle: bool) -> list[Part]:
        return list(self.state.shared_parts(optimizers, allow_pickle)) if self._writes_shared or self._shards else []

    def _written_here(self, weights: list[dict[str, Any]], shared: list[Part], allow_pickle: bool) -> list[Part]:
        """What this process writes of all that is not its own alone."""
        if not self._shards:
            models = self.council.together(lambda: model_parts(weights, allow_pickle) if self._writes_shared else [])
            return [*models, *shared]
        if self.project.save_on_each_node:
            raise CheckpointError(
                "shards of one checkpoint must lie in one folder; save to a shared one without save_on_each_node"
            )
        # A hook takes weights out on the main process alone.
        kept = weights[: self.council.follow(len(weights))]
        models = self.council.together(lambda: model_parts(kept, allow_pickle))
        from accel_runtime.checkpoint.shard_writing import shared_out

        return shared_out([*models, *shared], self.council)

    def _keeps(self, folder: Folder) -> int | None:
        automatic = folder is None or self.project.automatic_checkpoint_naming
        return self.project.total_limit if automatic else None

    def _target(self, folder: Folder) -> Path:
        if folder is not None and not self.project.automatic_checkpoint_naming:
            return self.council.follow(Path(folder).absolute())
        return self.council.follow(next_automatic(self._home, self.project.iteration))

    @property
    def _home(self) -> Path:
        """The folder of numbered checkpoints."""
        if self.project.project_dir is None:
            raise UsageError(
                "checkpoints without a name of their own go to project_dir/checkpoints; pass "
                "Accelerator(project_dir=...), or a folder to save_state and load_state"
            )
        return Path(self.project.project_dir).absolute() / "checkpoints"
