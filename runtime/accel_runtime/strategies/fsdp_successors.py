"""The sharded weights that took the place of a model's own, for optimizers and lists that still hold those."""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterable, Iterator, Mapping

import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from accel_runtime.errors import UsageError
from accel_runtime.shards import shard_like


class Successors:
    """Optimizers may come with their model, before it or after it."""

    def __init__(self) -> None:
        # By identity, and weakly: weights go when nobody else wants them.
        self._after: dict[int, tuple[weakref.ref[Parameter], weakref.ref[Tensor]]] = {}
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self.strays: list[Optimizer] = []  # those that step a weight of no prepared model

    def learn(self, before: Mapping[str, weakref.ref[Parameter]], after: Mapping[str, Tensor]) -> None:
        for name, weight in before.items():
            if (old := weight()) is not None and old is not after[name]:
                self._after[id(old)] = (weight, weakref.ref(after[name]))
        self.follow(list(self._optimizers))

    def of(self, weight: Tensor) -> Tensor:
        """The weight as it is now: a list that was made before `prepare` still means the same ones."""
        if id(weight) not in self._after:
            return weight
        old, new = self._after[id(weight)]
        successor = new()
        return weight if old() is not weight or successor is None else successor

    def follow(self, optimizers: Iterable[Optimizer]) -> None:
        """Makes the optimizers step the sharded weights, with the state that they have."""
        for optimizer in optimizers:
            self._optimizers.add(optimizer)
            for group in optimizer.param_groups:
                for index, weight in enumerate(group["params"]):
                    sharded = self.of(weight)
                    if sharded is not weight:
                        group["params"][index] = sharded
                        if weight in optimizer.state:
                            state = optimizer.state.pop(weight)
                            optimizer.state[sharded] = {key: shard_like(value, sharded) for key, value in state.items()}
        self.strays = [optimizer for optimizer in self._optimizers if _has_strays(optimizer)]

    def refuse_shared(self, model: Module, prepared: Container[Module]) -> None:
        """Of two models with a weight in common the second would run shards of the first, or train a copy of its own."""
        for name, weight in _own_weights(model, prepared):
            if isinstance(weight, DTensor) or self.of(weight) is not weight:
                raise UsageError(
                    f"{name} of {type(model).__name__} is a weight of another prepared model too, and fsdp shards it for one "
                    "of them; make both models parts of one module, whose forward runs both, and prepare that, or use "
                    "--strategy ddp"
                )

    def refuse_strays(self) -> None:
        raise UsageError(
            f"{type(self.strays[0]).__name__} steps weights that are of no prepared model, so their gradients would "
            "stay apart on each process; pass their model to prepare() too, and train plain tensors with ddp"
        )


def _own_weights(model: Module, prepared: Container[Module], prefix: str = "") -> Iterator[tuple[str, Parameter]]:
    """Those outside of models that were prepared before it, which stay as they are inside."""
    for name, weight in model.named_parameters(prefix, recurse=False):
        yield name, weight
    for name, child in model.named_children():
        if child not in prepared:
            yield from _own_weights(child, prepared, f"{prefix}.{name}" if prefix else name)


def _has_strays(optimizer: Optimizer) -> bool:
    weights = (weight for group in optimizer.param_groups for weight in group["params"])
    return dist.get_world_size() > 1 and any(w.requires_grad and not isinstance(w, DTensor) for w in weights)
