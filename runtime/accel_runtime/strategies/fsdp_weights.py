"""What a module holds before it is sharded: the weights of process 0, or fresh ones for what has none yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import Module, Parameter

from accel_runtime.errors import UsageError


class Held(NamedTuple):
    """A tensor of a module, and where it is there."""

    module: Module
    kind: str
    name: str
    tensor: Tensor

    def check_initialised(self, version: int) -> None:
        """Numbers show it in their values; of others only the count of changes is known."""
        tensor = self.tensor
        untouched = tensor.isnan().any() if tensor.is_floating_point() else tensor._version == version
        if untouched and vars(self.module)[self.kind][self.name] is tensor:
            raise UsageError(
                f"{self.name} of {type(self.module).__name__} was built on the meta device, and its initialisation does "
                "not set it; set it in reset_parameters(), or in the plugin's param_init_fn"
            )


@dataclass(frozen=True, slots=True)
class Filling:
    """Fills one module after another, so that no process ever holds more than one of them whole beyond its shards."""

    device: torch.device
    root: Module
    unmade: set[Module]  # those of which process 0 has a weight or buffer on the meta device, until they are filled
    initialise: Callable[[Module], Any] | None

    def fill(self, block: Module) -> None:
        fresh = [module for module in _children_first(block) if module in self.unmade]
        copies: dict[int, Tensor] = {}
        for held in _held(block):
            if held.tensor.is_meta:
                vars(held.module)[held.kind][held.name] = self._made(held.tensor, copies)
        made = [(held, held.tensor._version) for held in _held(block) if held.module in fresh]
        for module in fresh:
            self._initialise(module)
        for held, version in made:
            held.check_initialised(version)
        self.unmade.difference_update(fresh)
        for held in _held(block):
            _take_from_main(held.tensor, self.device)

    def _made(self, tensor: Tensor, copies: dict[int, Tensor]) -> Tensor:
        """Memory for the tensor, the same for all that share it; not a number until it is initialised."""
        if id(tensor) not in copies:
            made = torch.empty_like(tensor, device=self.device)
            if made.is_floating_point():
                made.fill_(torch.nan)
            weight = isinstance(tensor, Parameter)
            copies[id(tensor)] = Parameter(made, tensor.requires_grad) if weight else made
        return copies[id(tensor)]

    def _initialise(self, module: Module) -> None:
        """By the plugin's function; else as the module does it, and then as its model does, if it is of transformers."""
        own = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
        of_model = getattr(self.root, "_init_weights", None)
        if not (self.initialise or own or of_model):
            raise UsageError(
                f"{type(module).__name__} was built on the meta device and has no reset_parameters() to initialise it; "
                "pass FullyShardedDataParallelPlugin(param_init_fn=...), or build the model on the CPU of process 0"
            )
        with torch.no_grad():
            if self.initialise:
                self.initialise(module)
                return
            if own:
                own()
            if of_model:
                of_model(module)


def filling_for(model: Module, device: torch.device, initialise: Callable[[Module], Any] | None) -> Filling:
    """Every process must come here: process 0 says what it has."""
    named = (pair for tensors in (model.named_parameters(), model.named_buffers()) for pair in tensors)
    unmade = [sorted(name for name, tensor in named if tensor.is_meta)]
    dist.broadcast_object_list(unmade, src=0)
    return Filling(device, model, {model.get_submodule(name.rpartition(".")[0]) for name in unmade[0]}, initialise)


def _held(block: Module) -> Iterator[Held]:
    """The weights and buffers that are not sharded yet."""
    for module in block.modules():
        for kind in ("_parameters", "_buffers"):
            for name, tensor in list(vars(module)[kind].items()):
                if tensor is not None and not isinstance(tensor, DTensor):
                    yield Held(module, kind, name, tensor)


def _children_first(block: Module) -> Iterator[Module]:
    """The order in which constructors initialise: a parent may set what its children have."""
    for child in block.children():
        yield from _children_first(child)
    yield block


def _take_from_main(tensor: Tensor, device: torch.device) -> None:
    if dist.get_world_size() == 1:
        return
    value = tensor.detach().to(device).contiguous()
    dist.broadcast(value, src=0)
    with torch.no_grad():
        tensor.copy_(value)
