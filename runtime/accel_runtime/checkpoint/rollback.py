"""A run as it was before a state was put into it: a load that fails half-way leaves it as if it had never begun."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from accel_runtime.accumulation import Accumulation
from accel_runtime.checkpoint.run_state import RunState, random_states, restore_random
from accel_runtime.data.chance import moment_of
from accel_runtime.data.loader import PreparedLoader
from accel_runtime.tree import map_leaves

Undo = Callable[[], None]


class Rollback:
    """Everything of a run that `RunState.restore` changes, but trackers and what a strategy keeps for itself.

    `hooked` when hooks of the script load models as they like.
    """

    def __init__(self, state: RunState, hooked: bool) -> None:
        self._undos = list(_undos(state, hooked))

    def undo(self) -> None:
        for undo in self._undos:
            try:
                undo()
            except Exception as error:
                warnings.warn(
                    f"load_state failed, and putting back what was there failed too ({type(error).__name__}: {error}); "
                    "start the program again",
                    stacklevel=4,
                )


def _undos(state: RunState, hooked: bool) -> Iterator[Undo]:
    unwrap, precision = state.session.strategy.unwrap, state.session.precision
    for model in map(unwrap, state.prepared.models):
        yield _gradients_of(model)
        if hooked or not _takes_what_fits(model):
            yield _weights_of(model)
    for optimizer in state.own_optimizers:
        yield _optimizer(optimizer.optimizer)
    for thing in (*(scheduler.scheduler for scheduler in state.prepared.schedulers), *state.registry.objects):
        yield _stateful(thing)
    if (scales := precision.state()) is not None:
        yield lambda: precision.load_state(scales)
    yield _accumulation(state.accumulation)
    for loader in state.prepared.loaders:
        yield _position(loader)
    # At last: positions set the generators too.
    random, hardware = random_states(state.session.hardware), state.session.hardware
    yield lambda: restore_random(random, hardware)


def _takes_what_fits(model: Module) -> bool:
    """Whether a state whose names and shapes fit cannot fail half-way: no code but torch's takes part in loading."""
    return all(
        method.__module__.startswith("torch.nn.")
        for module in model.modules()
        for method in (type(module).load_state_dict, type(module)._load_from_state_dict, type(module).set_extra_state)
    ) and not any(module._load_state_dict_pre_hooks or module._load_state_dict_post_hooks for module in model.modules())


def _weights_of(model: Module) -> Undo:
    held = [value for value in model.state_dict().values() if isinstance(value, Tensor)]
    # Not on the device, where there may be no room for two.
    before = [value.detach().to("cpu", copy=True) for value in held]

    def undo() -> None:
        with torch.no_grad():
            for value, old in zip(held, before):
                value.copy_(old)

    return undo


def _gradients_of(model: Module) -> Undo:
    before = [(weight, weight.grad) for weight in model.parameters()]

    def undo() -> None:
        for weight, gradient in before:
            weight.grad = gradient

    return undo


def _optimizer(optimizer: Optimizer) -> Undo:
    """Loading makes a new state and leaves the old one alone, so that is kept without a copy."""
    state, groups = optimizer.state, optimizer.param_groups
    settings = [dict(group) for group in groups]

    def undo() -> None:
        optimizer.state, optimizer.param_groups = state, groups
        for group, before in zip(groups, settings):
            group.clear()
            group.update(before)

    return undo


class _Aside:
    """A tensor that waits in the CPU's memory."""

    def __init__(self, tensor: Tensor) -> None:
        self.device, self.tensor = tensor.device, tensor.detach().to("cpu", copy=True)


def _stateful(thing: Any) -> Undo:
    before = map_leaves(
        lambda leaf: _Aside(leaf) if isinstance(leaf, Tensor) else copy.deepcopy(leaf), thing.state_dict()
    )

    def back(leaf: Any) -> Any:
        return leaf.tensor.to(leaf.device) if isinstance(leaf, _Aside) else leaf

    return lambda: thing.load_state_dict(map_leaves(back, before))


def _accumulation(accumulation: Accumulation) -> Undo:
    sync = accumulation.sync
    blocks = {models: (block.count, block.length, block.iteration) for models, block in accumulation.blocks.items()}

    def undo() -> None:
        accumulation.sync = sync
        for models in [models for models in accumulation.blocks if models not in blocks]:
            del accumulation.blocks[models]
        for models, window in blocks.items():
            accumulation.blocks[models].resume(*window)

    return undo


def _position(loader: PreparedLoader) -> Undo:
    progress, before = loader.loader_progress, dict(vars(loader.loader_progress))
    chance, values = moment_of(progress.loader), progress.watch.all_values()
    workers, seed = loader.whole.workers, loader.whole.workers.seed

    def undo() -> None:
        vars(progress).update(before)
        values.restore(progress.loader)
        chance.restore(progress.loader)
        workers.seed = seed

    return undo
