"""Which modules of a model are sharded one by one: their weights are gathered when they run, and let go after."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator

from torch.nn import Module, ModuleDict, ModuleList, MultiheadAttention, Sequential

from accel_runtime.errors import UsageError
from accel_runtime.nearest import nearest
from accel_runtime.strategies.fsdp_plugin import Sharding


def blocks_of(model: Module, sharding: Sharding) -> list[Module]:
    """The blocks below the model itself, inner ones first, but for those that have a weight in common with what is outside."""
    owners: dict[int, set[Module]] = {}
    for module in model.modules():
        for weight in module.parameters(recurse=False):
            owners.setdefault(id(weight), set()).add(module)
    return [one for one in _chosen(model, sharding) if _has_all(one, owners)]


def _has_all(block: Module, owners: dict[int, set[Module]]) -> bool:
    """Whether its weights are of no module outside: they would be sharded for one of both, and torch refuses that."""
    inside = set(block.modules())
    return all(owners[id(weight)] <= inside for weight in block.parameters())


def _chosen(model: Module, sharding: Sharding) -> list[Module]:
    if sharding.policy is not None:
        return [module for module in _inside_out(model) if _agrees(sharding.policy, module)]
    if sharding.layers is not None:
        return _of_classes(model, sharding.layers)
    if sharding.min_parameters is not None:
        return _large_enough(model, sharding.min_parameters)
    return _found(model) if sharding.finds_blocks else []


def _inside_out(model: Module) -> Iterator[Module]:
    """Every module below the model that is called by itself, children before their parents."""
    # Attention reads the weights of its parts without calling them, so they are gathered with it.
    attentions = (module for module in model.modules() if isinstance(module, MultiheadAttention))
    parts = {id(part) for attention in attentions for part in attention.modules() if part is not attention}
    for module in reversed(list(model.modules())[1:]):
        if id(module) not in parts and not isinstance(module, (ModuleList, ModuleDict)):
            yield module


def _agrees(policy: Callable[..., bool], module: Module) -> bool:
    """Policies of FSDP1 are asked by three names; a policy of one's own takes the module."""
    if "recurse" in inspect.signature(policy).parameters:
        return policy(module=module, recurse=False, nonwrapped_numel=_size(module))
    return policy(module)


def _of_classes(model: Module, names: tuple[str, ...]) -> list[Module]:
    there = {type(module).__name__ for module in model.modules()}
    if missing := [name for name in names if name not in there]:
        raise UsageError(
            f"wrap_layers names {missing[0]}, and {type(model).__name__} has no such layer{nearest(missing[0], there)}"
        )
    return [module for module in _inside_out(model) if type(module).__name__ in names]


def _large_enough(model: Module, least: int) -> list[Module]:
    """Modules whose parameters, without those of blocks inside, are as many."""
    blocks: list[Module] = []
    taken: set[int] = set()
    for module in _inside_out(model):
        own = [weight for weight in module.parameters() if id(weight) not in taken]
        if sum(weight.numel() for weight in own) >= least:
            blocks.append(module)
            taken.update(map(id, own))
    return blocks


def _found(model: Module) -> list[Module]:
    """What the model's author says must not be split, else what is repeated: the outermost such layers."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    named = [module for module in _inside_out(model) if type(module).__name__ in names]
    return named or list(reversed(list(_repeated(model))))


def _repeated(module: Module) -> Iterator[Module]:
    for child in module.children():
        if isinstance(child, (ModuleList, Sequential)):
            kinds = Counter(type(layer) for layer in child)
            blocks = [layer for layer in child if kinds[type(layer)] > 1 and _is_composed(layer)]
        else:
            blocks = []
        yield from blocks
        # A layer that is no block itself may hold some.
        for layer in child.children() if blocks else [child]:
            if layer not in blocks:
                yield from _repeated(layer)


def _is_composed(layer: Module) -> bool:
    """A block is made of layers; a single one is too little to be gathered alone."""
    return any(True for _ in layer.children()) and _size(layer) > 0


def _size(module: Module) -> int:
    return sum(weight.numel() for weight in module.parameters())
