"""The state of a run: taken from what was prepared and registered, and put back into it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import msgspec
from torch import Tensor

from accel_runtime.accumulation import Accumulation
from accel_runtime.bundle import Prepared
from accel_runtime.checkpoint.encoding import State
from accel_runtime.checkpoint.layouts import Layouts
from accel_runtime.checkpoint.loaded import Kept, Loaded
from accel_runtime.checkpoint.writing import Part, part_of, part_of_model
from accel_runtime.data.chance import global_states, restore_global
from accel_runtime.data.iteration import Iterations
from accel_runtime.data.loader import PreparedLoader
from accel_runtime.data.progress import Position
from accel_runtime.data.resumption import Resuming
from accel_runtime.data.unresumable import unresumable_reason
from accel_runtime.devices import Device
from accel_runtime.optimizer import PreparedOptimizer
from accel_runtime.registry import Registry
from accel_runtime.resolve import Session
from accel_runtime.tracking import Trackers


def numbered(name: str, index: int) -> str:
    """The file of the first thing of a kind has the plain name."""
    return f"{name}_{index}" if index else name


Place = Annotated[int, msgspec.Meta(ge=0)]


class Window(msgspec.Struct, frozen=True):
    """An accumulation window that is open: the places of its models and of its loader, and how far it is."""

    models: list[Place]
    loader: Place | None
    count: Place
    length: Annotated[int, msgspec.Meta(ge=1)]


@dataclass(frozen=True, slots=True)
class RunState:
    """Everything of one Accelerator that a checkpoint is about."""

    session: Session
    prepared: Prepared
    registry: Registry
    accumulation: Accumulation
    iterations: Iterations
    trackers: Trackers

    def weights(self) -> list[dict[str, Any]]:
        """The state of every model; a collective where models are sharded."""
        return [self.session.strategy.kept_state(model) for model in self.prepared.models]

    def standing(self) -> tuple[int, int, int]:
        """The training's epoch, step and batch: those of the loader that the latest step used, the first one prepared
        where it used several."""
        if not self.prepared.loaders:
            return 0, 0, 0
        # Among equals `max` takes the first.
        leading = max(self.prepared.loaders, key=lambda loader: loader.loader_progress.latest_use)
        position = leading.position()
        batch = position.before // leading.batches_per_round + position.rounds
        return position.passes, position.steps + position.done + position.rounds, batch

    @property
    def own_optimizers(self) -> list[PreparedOptimizer]:
        """Those whose state is not kept by the strategy."""
        return [] if self.session.strategy.keeps_optimizers else self.prepared.optimizers

    def optimizer_states(self) -> list[dict[str, Any]]:
        """The state of every optimizer; a collective where optimizers are sharded."""
        return [self.session.strategy.optimizer_state(optimizer.optimizer) for optimizer in self.own_optimizers]

    def shared_parts(self, optimizers: list[dict[str, Any]], allow_pickle: bool) -> Iterator[Part]:
        """What is the same on every process, and so is written by one; all but the models."""
        for index, (optimizer, state) in enumerate(zip(self.own_optimizers, optimizers)):
            yield _kind_part(numbered("optimizer", index), optimizer.optimizer, state, allow_pickle)
        for index, scheduler in enumerate(self.prepared.schedulers):
            yield _kind_part(
                numbered("scheduler", index), scheduler.scheduler, scheduler.scheduler.state_dict(), allow_pickle
            )
        if (scales := self.session.precision.state()) is not None:
            yield part_of("scaler", scales)
        if records := self.trackers.state():
            yield part_of("trackers", records)
        for index, thing in enumerate(self.registry.objects):
            yield part_of(f"custom_{index}", thing.state_dict(), allow_pickle)
        if self.session.strategy.shards:
            yield part_of("gradients", [self._gradients(model) for model in self.prepared.models])

    def own_part(self) -> Part:
        """What each process has for itself: its generators, its gradients so far, where its loaders are."""
        state = {
            "random": random_states(self.session.hardware),
            "gradients": []
            if self.session.strategy.shards
            else [self._gradients(model) for model in self.prepared.models],
            "loaders": [asdict(self._position(loader)) for loader in self.prepared.loaders],
            "blocks": list(self._blocks()),
            "synced": self.accumulation.sync,
            "strategy": self.session.strategy.own_state(),
        }
        return part_of(f"rank_{self.session.world.rank}", state)

    def _position(self, loader: PreparedLoader) -> Position:
        position = loader.position()
        if (unkept := loader.loader_progress.watch.unkept()) is not None:
            warnings.warn(
                f"this checkpoint cannot keep the order of {type(loader.dataset).__name__}: {unkept}; give its "
                "owner state_dict and load_state_dict, or a generator in the main process instead",
                stacklevel=8,
            )
        if (reason := unresumable_reason(loader.loader_progress)) is not None:
            warnings.warn(reason, stacklevel=8)
        return position

    def layouts(self) -> Layouts:
        if not self.session.strategy.shards:
            return Layouts()
        models = tuple(map(self.session.strategy.unwrap, self.prepared.models))
        optimizers = tuple(optimizer.optimizer for optimizer in self.own_optimizers)
        return Layouts(models, optimizers, tuple(self.registry.objects))

    def restore(self, loaded: Loaded, models: list[Any]) -> Resuming:
        """Puts a state back that was checked to fit; `models` are those that no hook of the script has taken over.

        Models come at the end: of most of them no copy is held to return to, for nothing can fail after this.
        """
        strategy, resuming = self.session.strategy, self._resuming(loaded)
        for thing, kept in zip(self.registry.objects, loaded.objects):
            thing.load_state_dict(kept.state)
        if not strategy.weights_reset_optimizers:
            self._restore_optimizers(loaded)
        if loaded.own_states is not None:
            strategy.load_own_state(loaded.own_states)
        for scheduler, kept in zip(self.prepared.schedulers, loaded.schedulers):
            scheduler.scheduler.load_state_dict(kept.state)
        if loaded.scaler is not None:
            self.session.precision.load_state(loaded.scaler.state)
        if loaded.random is not None:
            restore_random(loaded.random, self.session.hardware)
        if loaded.progress is not None:
            self._restore_progress(loaded.progress, resuming)
        if loaded.trackers is not None:
            self.trackers.resume(loaded.trackers.state)
        for model, kept in zip(models, loaded.models):
            strategy.load_state_dict(model, kept.state)
        if strategy.weights_reset_optimizers:
            self._restore_optimizers(loaded)
        return resuming

    def _restore_optimizers(self, loaded: Loaded) -> None:
        for optimizer, kept in zip(self.own_optimizers, loaded.optimizers):
            optimizer.optimizer.load_state_dict(kept.state)

    def _restore_progress(self, progress: dict[str, State], resuming: Resuming) -> None:
        for model, gradients in zip(self.prepared.models, progress["gradients"]):
            self._restore_gradients(model, gradients)
        if (saved := len(progress["loaders"])) != (own := len(self.prepared.loaders)) and own:
            warnings.warn(
                f"the checkpoint has the positions of {saved} loader(s) and this run has {own}: they are taken in the order "
                "of prepare(); prepare the same ones, or data may come twice or not at all",
                stacklevel=6,
            )
        for loader, position in zip(self.prepared.loaders, progress["loaders"]):
            loader.resume(msgspec.convert(position, Position), resuming)
        self.accumulation.sync = bool(progress["synced"])
        for window in msgspec.convert(progress["blocks"], list[Window]):
            models = tuple(self.prepared.models[index] for index in window.models)
            resumption = (
                None if window.loader is None else self.prepared.loaders[window.loader].loader_progress.resumption
            )
            iteration = resumption.iteration if resumption else None
            self.accumulation.blocks[models].resume(window.count, window.length, iteration)

    def _resuming(self, loaded: Loaded) -> Resuming:
        hardware = self.session.hardware
        return Resuming(
            loaded.processes,
            loaded.processes == self.session.world.size,
            stateful=any(loader.settings.stateful for loader in self.prepared.loaders),
            restore=lambda: None if loaded.random is None else restore_random(loaded.random, hardware),
        )

    def _gradients(self, model: Any) -> dict[str, Tensor]:
        named = self.session.strategy.unwrap(model).named_parameters()
        return {name: weight.grad for name, weight in named if weight.grad is not None}

    def _restore_gradients(self, model: Any, gradients: dict[str, Tensor]) -> None:
        for name, weight in self.session.strategy.unwrap(model).named_parameters():
            saved = gradients.get(name)
            weight.grad = None if saved is None else self._as_held(saved, weight)

    def _as_held(self, gradient: Tensor, weight: Tensor) -> Tensor:
        if self.session.strategy.shards:
            from accel_runtime.shards import shard_like

            gradient = shard_like(gradient, weight)
        return gradient.to(weight.device, copy=True)

    def _blocks(self) -> Iterator[dict[str, State]]:
        """The accumulation windows that are open, by the places of their models and of their loader."""
        models = {id(model): index for index, model in enumerate(self.prepared.models)}
        loaders = {id(loader.loader_progress.iteration): index for index, loader in enumerate(self.prepared.loaders)}
        for key, block in self.accumulation.blocks.items():
            known = all(id(model) in models for model in key)
            under_way = block.iteration is None or block.iteration in self.iterations.stack
            if known and under_way and (block.iteration is None or id(block.iteration) in loaders):
                yield {
                    "models": [models[id(model)] for model in key],
                    "loader": None if block.iteration is None else loaders[id(block.iteration)],
                    "count": block.count,
                    "length": block.length,
                }


def model_parts(weights: list[dict[str, Any]], allow_pickle: bool) -> list[Part]:
    return [part_of_model(numbered("model", index), state, allow_pickle) for index, state in enumerate(weights)]


def kind_of(thing: Any) -> str:
    """The class that it says it is: an optimizer in an engine is saved as what the user made."""
    return thing.__class__.__name__  # type: ignore[no-any-return]


def random_states(hardware: Device) -> dict[str, Any]:
    """The global generators of this process, and its device's."""
    states = global_states()
    if (own := hardware.random_state()) is not None:
        states.update(device=own, device_kind=hardware.name)
    return states


def restore_random(states: dict[str, Any], hardware: Device) -> None:
    restore_global(states)
    # Another kind of device draws from another kind of generator.
    if "device" in states and states.get("device_kind", hardware.name) == hardware.name:
        hardware.restore_random_state(states["device"])


def _kind_part(name: str, thing: Any, state: dict[str, Any], allow_pickle: bool) -> Part:
    return part_of(name, {"kind": kind_of(thing), "state": state}, allow_pickle)


def kept_kind(kept: Kept) -> Kept:
    return Kept(kept.path, kept.state["state"], kept.state["kind"])
