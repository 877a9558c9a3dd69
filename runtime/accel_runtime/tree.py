"""Walks over nested batches: lists, tuples, named tuples, mappings and dataclasses with anything at the leaves."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

# Any: a batch has the type its author gave it.
Tree = Any
Leaf = Any


def map_leaves(function: Callable[[Leaf], Leaf], tree: Tree) -> Tree:
    """The same containers with every leaf replaced; dataclasses and mappings keep their class."""
    if isinstance(tree, torch.Tensor):
        return function(tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_leaves(function, item) for item in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_leaves(function, item) for item in tree)
    if isinstance(tree, Mapping):
        return _with_items(tree, {key: map_leaves(function, item) for key, item in tree.items()})
    if _is_dataclass(tree):
        return _with_fields(tree, {name: map_leaves(function, item) for name, item in _fields(tree)})
    return function(tree)


def leaves(tree: Tree, path: str = "") -> Iterator[tuple[str, Leaf]]:
    """Every leaf with its path, in the order of `map_leaves`."""
    if isinstance(tree, torch.Tensor):
        yield path, tree
    elif isinstance(tree, (list, tuple)):
        for index, item in enumerate(tree):
            yield from leaves(item, f"{path}[{index}]")
    elif isinstance(tree, Mapping):
        for key, item in tree.items():
            yield from leaves(item, f"{path}[{key!r}]")
    elif _is_dataclass(tree):
        for name, item in _fields(tree):
            yield from leaves(item, f"{path}.{name}")
    else:
        yield path, tree


def replace_leaves(tree: Tree, values: list[Leaf], none: bool = False) -> Tree:
    """The tree with its leaves taken from `values`, which are in the order of `leaves`; with `none`, None stays."""
    remaining = iter(values)
    return map_leaves(lambda leaf: None if none and leaf is None else next(remaining), tree)


def place(tree: Tree, device: torch.device, non_blocking: bool = False) -> Tree:
    """The batch on the device: whatever has a `.to` is asked, containers are walked, the rest stays as it is."""
    if isinstance(tree, torch.Tensor):
        return tree.to(device, non_blocking=non_blocking)
    if hasattr(tree, "to"):
        return tree.to(device)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(place(item, device, non_blocking) for item in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(place(item, device, non_blocking) for item in tree)
    if isinstance(tree, Mapping):
        return _with_items(tree, {key: place(item, device, non_blocking) for key, item in tree.items()})
    if _is_dataclass(tree):
        return _with_fields(tree, {name: place(item, device, non_blocking) for name, item in _fields(tree)})
    return tree


def batch_rows(tree: Tree) -> int | None:
    """How many rows the first tensor of the batch has; None when there is no tensor with rows."""
    return next((len(leaf) for _, leaf in leaves(tree) if isinstance(leaf, torch.Tensor) and leaf.dim()), None)


def _with_items(tree: Mapping[Any, Any], items: dict[Any, Any]) -> Mapping[Any, Any]:
    if type(tree) is dict:
        return items
    # A copy keeps what a constructor may not take: the factory of a defaultdict, the extras of a BatchEncoding.
    rebuilt: Any = copy.copy(tree)
    for key, item in items.items():
        rebuilt[key] = item
    return rebuilt  # type: ignore[no-any-return]


def _with_fields(tree: Any, values: dict[str, Any]) -> Any:
    # Not dataclasses.replace: fields with init=False and __post_init__ would run again.
    rebuilt = copy.copy(tree)
    for name, value in values.items():
        object.__setattr__(rebuilt, name, value)
    return rebuilt


def _is_dataclass(tree: Any) -> bool:
    return dataclasses.is_dataclass(tree) and not isinstance(tree, type)


def _fields(tree: Any) -> Iterator[tuple[str, Any]]:
    return ((field.name, getattr(tree, field.name)) for field in dataclasses.fields(tree))
