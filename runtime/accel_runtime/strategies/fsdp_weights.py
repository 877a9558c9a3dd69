"""What a module holds before it is sharded: the weights of process 0, or fresh ones for what has none yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import Module, Parameter

from accel_runtime.errors import UsageError


@dataclass(frozen=True, slots=True)
class Filling:
    """Fills one module after another, so that no process ever holds more than one of them whole beyond its shards."""

    device: torch.device
    root: Module
    unmade: frozenset[str]  # weights and buffers that process 0 has on the meta device
    names: dict[int, str]
    initialise: Callable[[Module], Any] | None

    def fill(self, block: Module) -> None:
        fresh = [module for module in _children_first(block) if self._is_unmade(module)]
        copies: dict[int, Tensor] = {}
        for module, kind, name, tensor in _own_tensors(block):
            if tensor.is_meta:
                vars(module)[kind][name] = self._made(tensor, copies)
        for module in fresh:
            self._initialise(module)
        _check_initialised(fresh)
        for _, _, _, tensor in _own_tensors(block):
            _take_from_main(tensor, self.device)

    def _is_unmade(self, module: Module) -> bool:
        tensors = (tensor for owner, _, _, tensor in _own_tensors(module) if owner is module)
        return any(self.names.get(id(tensor)) in self.unmade for tensor in tensors)

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
        initialise = self._initialiser(module)
        if initialise is None:
            raise UsageError(
                f"{type(module).__name__} was built on the meta device and has no reset_parameters() to initialise it; "
                "pass FullyShardedDataParallelPlugin(param_init_fn=...), or build the model on the CPU of process 0"
            )
        with torch.no_grad():
            initialise()

    def _initialiser(self, module: Module) -> Callable[[], Any] | None:
        if self.initialise is not None:
            chosen = self.initialise
            return lambda: chosen(module)
        # Models of transformers initialise any of their modules.
        of_model = getattr(self.root, "_init_weights", None)
        own = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
        return (lambda: of_model(module)) if own is None and of_model is not None else own


def filling_for(model: Module, device: torch.device, initialise: Callable[[Module], Any] | None) -> Filling:
    """Every process must come here: process 0 says what it has."""
    named = [(name, tensor) for named in (model.named_parameters, model.named_buffers) for name, tensor in named()]
    unmade = [sorted(name for name, tensor in named if tensor.is_meta)]
    dist.broadcast_object_list(unmade, src=0)
    return Filling(device, model, frozenset(unmade[0]), {id(tensor): name for name, tensor in named}, initialise)


def _own_tensors(block: Module) -> Iterator[tuple[Module, str, str, Tensor]]:
    """The weights and buffers that are not sharded yet, each with its module and its place there."""
    for module in block.modules():
        for kind in ("_parameters", "_buffers"):
            for name, tensor in list(vars(module)[kind].items()):
                if tensor is not None and not isinstance(tensor, DTensor):
                    yield module, kind, name, tensor


def _children_first(block: Module) -> Iterator[Module]:
    """The order in which constructors initialise: a parent may set what its children have."""
    for child in block.children():
        yield from _children_first(child)
    yield block


def _check_initialised(modules: list[Module]) -> None:
    for module in modules:
        for owner, _, name, tensor in _own_tensors(module):
            if owner is module and tensor.is_floating_point() and tensor.isnan().any():
                raise UsageError(
                    f"{name} of {type(module).__name__} was built on the meta device and is still not a number after "
                    "its initialisation; set it in reset_parameters(), or in the plugin's param_init_fn"
                )


def _take_from_main(tensor: Tensor, device: torch.device) -> None:
    if dist.get_world_size() == 1:
        return
    value = tensor.detach().to(device).contiguous()
    dist.broadcast(value, src=0)
    with torch.no_grad():
        tensor.copy_(value)
