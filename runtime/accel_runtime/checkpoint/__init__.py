"""Checkpoints: the state of a run in a folder that is there whole or not at all."""

from __future__ import annotations

import functools
import os
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from accel_runtime.checkpoint.background import Background
from accel_runtime.checkpoint.fitting import (
    check_fits,
    check_object,
    check_optimizer_state,
    check_scheduler,
    check_trackers,
)
from accel_runtime.checkpoint.folders import number_of
from accel_runtime.checkpoint.loaded import Loaded, check_kind, check_model, check_number, check_optimizer
from accel_runtime.checkpoint.manifest import Manifest
from accel_runtime.checkpoint.own_format import Most, loaded_from
from accel_runtime.checkpoint.peer_format import is_of_peer, loaded_from_peer
from accel_runtime.checkpoint.process_group import CheckpointGroup, checkpoint_group
from accel_runtime.checkpoint.reading import Saved, open_checkpoint, open_latest
from accel_runtime.checkpoint.rollback import Rollback
from accel_runtime.checkpoint.run_state import RunState, model_parts
from accel_runtime.checkpoint.signals import handlers_postponed
from accel_runtime.checkpoint.writing import Destination, Part, begin, finish
from accel_runtime.configuration import ProjectConfiguration
from accel_runtime.data.resumption import Resuming
from accel_runtime.errors import CheckpointError, UsageError

LATEST = "latest"
Folder = str | os.PathLike[str] | None


class Resumed:
    """Where a loaded run stands. A script that starts its loop from `epoch` or `step` goes on in the middle of the epoch.

    `epoch`: the one under way. `step`: batches trained on since the first one. `batch`: those of this epoch.
    """

    def __init__(self, folder: Path, epoch: int, step: int, batch: int, resuming: Resuming) -> None:
        self.folder = folder
        self.batch = batch
        self._epoch = epoch
        self._step = step
        self._resuming = resuming

    @property
    def epoch(self) -> int:
        """Asking for it means that the loop goes on in this epoch, however little is left of it."""
        self._resuming.from_epoch = True
        return self._epoch

    @property
    def step(self) -> int:
        """Asking for it means that the loop goes on after this step."""
        self._resuming.from_step = True
        return self._step

    def __repr__(self) -> str:
        return f"Resumed(folder={str(self.folder)!r}, epoch={self._epoch}, step={self._step}, batch={self.batch})"


class Checkpoints:
    """Saves and loads the state of one Accelerator."""

    def __init__(self, state: RunState, project: ProjectConfiguration) -> None:
        self.state = state
        self.project = project
        self.background = Background()
        self._lock = threading.RLock()

    @functools.cached_property
    def group(self) -> CheckpointGroup:
        return checkpoint_group(self.state.session.world)

    def save(self, folder: Folder, allow_pickle: bool = False, wait: bool = True) -> Path:
        """Writes the state; every process must come here. Returns where it is now, or soon without `wait`."""
        self.state.session.collectives.announce("save_state")
        with self._lock, handlers_postponed():
            self.background.settle()
            destination = self._destination(folder)
            weights, optimizers = self.group.together(lambda: (self.state.weights(), self.state.optimizer_states()))
            own, shared = self.group.together(
                lambda: (self.state.own_part(), self._shared_parts(optimizers, allow_pickle))
            )
            parts = [own, *self._written_here(weights, shared, allow_pickle)]
            draft = begin(destination, parts, self.group)
            self.project.iteration = max(self.project.iteration, number_of(draft.target) + 1)
            with draft.discarded_on_error():
                if self.group.total(len(self.state.registry.before_save.all)):
                    # Hooks may write files of their own into the folder, and take out weights that they have saved.
                    models, staging = self.state.prepared.models, str(draft.staging)
                    self.group.together(lambda: self.state.registry.before_save.run(models, weights, staging))
                    parts = [own, *self._written_here(weights, shared, allow_pickle)]
                manifest = self._manifest()
                copies = parts if wait else self.group.together(lambda: self.background.copied(parts))
            if wait:
                return finish(draft, parts, manifest)
            self.background.start(lambda: finish(draft, copies, manifest))
            return draft.target

    def load(self, folder: Folder, missing_ok: bool = False, allow_pickle: bool = False) -> Resumed | None:
        """Puts a state back, after all of it was verified and found to fit."""
        self.state.session.collectives.announce("load_state")
        with self._lock, handlers_postponed():
            self.background.settle()
            loaded = self._loaded(folder, allow_pickle)
            if loaded is not None:
                self.group.together(lambda: self._check(loaded, allow_pickle))
                resuming = self._put_back(loaded)
                return Resumed(loaded.folder, loaded.epoch, loaded.step, loaded.batch, resuming)
        if missing_ok:
            return None
        raise CheckpointError(f"there is no checkpoint in {self._home}; pass missing_ok=True to begin without one")

    def _put_back(self, loaded: Loaded) -> Resuming:
        hooked = bool(self.group.total(len(self.state.registry.before_load.all)))
        rollback = self.group.together(lambda: Rollback(self.state, hooked))
        models = list(self.state.prepared.models)
        try:
            self.group.together(lambda: self.state.registry.before_load.run(models, str(loaded.folder)))
            self.group.together(lambda: self._check_models(loaded, models))
            return self.group.together(lambda: self.state.restore(loaded, models))
        except BaseException:
            rollback.undo()
            raise

    def _loaded(self, folder: Folder, allow_pickle: bool) -> Loaded | None:
        world = self.state.session.world
        if folder is not None and folder != LATEST:
            path = Path(folder)
            if self.group.broadcast(is_of_peer(path)):
                if self._shards:
                    raise CheckpointError(
                        f"{path} is a checkpoint of Accelerate, which sharded runs do not read; load it with strategy ddp "
                        "and save it again"
                    )
                return self.group.together(lambda: loaded_from_peer(path, world))
            saved: Saved | None = open_checkpoint(path, self.group, allow_pickle)
        else:
            saved = open_latest(self._home, self.group, allow_pickle)
        if saved is None:
            return None
        return self.group.together(lambda: loaded_from(saved, world, self.state.layouts(), self._most()))

    def _most(self) -> Most:
        """How many things of each kind this run can take: more are not even read."""
        prepared = self.state.prepared
        return Most(
            len(prepared.models),
            len(self.state.own_optimizers),
            len(prepared.schedulers),
            len(self.state.registry.objects),
        )

    def _check(self, loaded: Loaded, trusted: bool) -> None:
        prepared, registry, strategy = self.state.prepared, self.state.registry, self.state.session.strategy
        check_number(loaded, loaded.optimizers, len(self.state.own_optimizers), "optimizer", "prepare")
        check_number(loaded, loaded.schedulers, len(prepared.schedulers), "scheduler", "prepare")
        check_number(loaded, loaded.objects, len(registry.objects), "registered object", "register")
        for kept, optimizer in zip(loaded.optimizers, self.state.own_optimizers):
            check_optimizer(kept, optimizer.optimizer, strategy.group_sizes(optimizer.optimizer))
        if loaded.own_states is not None:
            strategy.check_own_state(loaded.own_states)
        for kept, scheduler in zip(loaded.schedulers, prepared.schedulers):
            check_kind(kept, scheduler.scheduler)
        if not trusted:
            self._check_types(loaded)
        if loaded.random is None and loaded.processes == self.state.session.world.size:
            warnings.warn(f"{loaded.folder} has no random states of this process; they stay as they are", stacklevel=5)

    def _check_types(self, loaded: Loaded) -> None:
        """Refuses states that are not data of the kind that this run has; see `fitting`."""
        for kept, optimizer in zip(loaded.optimizers, self.state.own_optimizers):
            check_optimizer_state(kept.state, optimizer.optimizer, str(kept.path))
        for kept, scheduler in zip(loaded.schedulers, self.state.prepared.schedulers):
            check_scheduler(kept.state, scheduler.scheduler, str(kept.path))
        for kept, thing in zip(loaded.objects, self.state.registry.objects):
            check_object(kept.state, thing, str(kept.path))
        if loaded.scaler is not None and (scales := self.state.session.precision.state()) is not None:
            check_fits(loaded.scaler.state, scales, str(loaded.scaler.path))
        if loaded.trackers is not None:
            check_trackers(loaded.trackers.state, self.state.trackers.state(), str(loaded.trackers.path))

    def _check_models(self, loaded: Loaded, models: list[Any]) -> None:
        """Of those that no hook of the script has taken over."""
        strategy = self.state.session.strategy
        check_number(loaded, loaded.models, len(models), "model", "prepare")
        for kept, model in zip(loaded.models, models):
            check_model(kept, type(strategy.unwrap(model)).__name__, strategy.shapes(model))

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
            models = self.group.together(lambda: model_parts(weights, allow_pickle) if self._writes_shared else [])
            return [*models, *shared]
        if self.project.save_on_each_node:
            raise CheckpointError(
                "shards of one checkpoint must lie in one folder; save to a shared one without save_on_each_node"
            )
        # A hook takes weights out on the main process alone.
        kept = weights[: self.group.broadcast(len(weights))]
        models = self.group.together(lambda: model_parts(kept, allow_pickle))
        from accel_runtime.checkpoint.shard_writing import shared_out

        return shared_out([*models, *shared], self.group)

    def _destination(self, folder: Folder) -> Destination:
        automatic = folder is None or self.project.automatic_checkpoint_naming
        return Destination(
            folder=None if automatic else folder,
            home=self._home if automatic else None,
            first=self.project.iteration,
            keeps=self.project.total_limit if automatic else None,
            each_node=self.project.save_on_each_node,
        )

    @property
    def _home(self) -> Path:
        """The folder of numbered checkpoints."""
        if self.project.project_dir is None:
            raise UsageError(
                "checkpoints without a name of their own go to project_dir/checkpoints; pass "
                "Accelerator(project_dir=...), or a folder to save_state and load_state"
            )
        return Path(self.project.project_dir).absolute() / "checkpoints"
