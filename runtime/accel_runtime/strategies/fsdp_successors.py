"""The sharded weights that took the place of a model's own, for optimizers and lists that still hold those."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import Module, Parameter
from torch.optim import Optimizer
from torch.utils._pytree import tree_map

from accel_runtime.errors import UsageError
from accel_runtime.shards import shard_like


class Replaced(Parameter):
    """A weight that was sharded, where a script still holds it: what is asked of it is asked of the model's own.

    It would go on with the values from before the training, and without gradients.
    """

    owner: Module
    name_there: str

    @property
    def now(self) -> Tensor:
        """The shard, or all of the weight while it is gathered."""
        return self.owner._parameters[self.name_there]  # type: ignore[return-value]

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: object, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return function(*tree_map(present, args), **tree_map(present, kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now, name)


def present(value: Any) -> Any:
    """A weight as it is now: a list that was made before `prepare` still means the same ones."""
    return value.now if type(value) is Replaced else value


class Successors:
    """Optimizers may come with their model, before it or after it."""

    def __init__(self) -> None:
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self.strays: list[Optimizer] = []  # those that step a weight of no prepared model

    def learn(self, model: Module, before: Mapping[str, weakref.ref[Parameter]]) -> None:
        for path, weight in before.items():
            owner, _, name = path.rpartition(".")
            if (old := weight()) is not None and old is not model.get_parameter(path):
                vars(old).update(owner=model.get_submodule(owner), name_there=name)
                old.__class__ = Replaced
        self.follow(list(self._optimizers))

    def follow(self, optimizers: Iterable[Optimizer]) -> None:
        """Makes the optimizers step the sharded weights, with the state that they have."""
        for optimizer in optimizers:
            self._optimizers.add(optimizer)
            for group in optimizer.param_groups:
                for index, weight in enumerate(group["params"]):
                    sharded = present(weight)
                    if sharded is not weight:
                        group["params"][index] = sharded
                        if weight in optimizer.state:
                            state = optimizer.state.pop(weight)
                            optimizer.state[sharded] = {key: shard_like(value, sharded) for key, value in state.items()}
        self.strays = [optimizer for optimizer in self._optimizers if _has_strays(optimizer)]

    def refuse_shared(self, model: Module, prepared: Container[Module]) -> None:
        """Of two models with a weight in common the second would run shards of the first, or train a copy of its own."""
        for name, weight in _own_weights(model, prepared):
            if isinstance(weight, DTensor) or present(weight) is not weight:
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
