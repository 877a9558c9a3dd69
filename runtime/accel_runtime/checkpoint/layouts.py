"""How this run holds its tensors: those of a checkpoint are read the same way, as shards or whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from accel_runtime.checkpoint.encoding import State
from accel_runtime.checkpoint.reading import NOTHING, Pairs


@dataclass(frozen=True, slots=True)
class Layouts:
    """Of a run whose models are sharded; one whose models are whole has none of them."""

    models: tuple[Module, ...] = ()
    optimizers: tuple[Optimizer, ...] = ()
    objects: tuple[Any, ...] = ()  # registered by the script

    def of_model(self, index: int) -> Mapping[str, Tensor]:
        return self.models[index].state_dict() if index < len(self.models) else NOTHING

    def of_optimizer(self, index: int) -> Pairs | None:
        if index >= len(self.optimizers):
            return None
        weights = [weight for group in self.optimizers[index].param_groups for weight in group["params"]]
        return lambda state: _pairs_of_optimizer(state["state"]["state"], weights)

    def of_object(self, index: int) -> Pairs | None:
        if index >= len(self.objects):
            return None
        own = self.objects[index].state_dict()
        return lambda state: _pairs_of_trees(state, own)

    def of_gradients(self) -> Pairs | None:
        return (lambda states: _pairs_of_gradients(states, self.models)) if self.models else None


def _pairs_of_optimizer(states: Mapping[int, State], weights: list[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """What an optimizer keeps in the shape of a weight is sharded as the weight is."""
    for number, state in states.items():
        for value in state.values():
            if isinstance(value, Tensor) and number < len(weights) and value.shape == weights[number].shape:
                yield value, weights[number]


def _pairs_of_gradients(states: State, models: Iterable[Module]) -> Iterator[tuple[Tensor, Tensor]]:
    for gradients, model in zip(states, models):
        weights = dict(model.named_parameters())
        yield from ((gradient, weights[name]) for name, gradient in gradients.items() if name in weights)


def _pairs_of_trees(state: State, own: State) -> Iterator[tuple[Tensor, Tensor]]:
    """What stands at the same place in both; an average of the weights, for one, is sharded as they are."""
    if isinstance(state, Tensor) and isinstance(own, Tensor):
        yield state, own
    elif isinstance(state, dict) and isinstance(own, dict):
        for key in state.keys() & own.keys():
            yield from _pairs_of_trees(state[key], own[key])
    elif isinstance(state, (list, tuple)) and isinstance(own, (list, tuple)):
        for one, other in zip(state, own):
            yield from _pairs_of_trees(one, other)
