"""Generators of random numbers: where a script keeps them, and their states, which a checkpoint may have from anybody."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy
import torch

from accel_runtime.errors import CheckpointError

DEPTH = 6  # of objects in objects
MANY = 5000  # objects that are looked at
CROWD = 64  # containers with more items than this hold data
SCALARS = (bool, int, float, str, type(None))
LEFT_ALONE = (torch.Tensor, torch.nn.Module, type, ModuleType, bytes)
# Classes and functions of these packages draw from nothing but what their objects hold.
LIBRARIES = ("builtins", "torch", "typing", "collections", "accel_runtime", "random", "numpy", "abc")
TWISTER = 624  # words of a Mersenne twister
PHILOX = 4  # numbers that a Philox generator makes at a time


def generators_in(roots: dict[str, Any]) -> dict[str, Any]:
    """Each generator once, by the path of attributes that leads to it."""
    return {path: thing for path, thing in reached(roots) if is_generator(thing)}


def state_of(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.Random):
        return generator.getstate()
    if hasattr(generator, "get_state"):  # numpy's RandomState
        return generator.get_state()
    return copy.deepcopy(getattr(generator, "bit_generator", generator).state)


def set_state(generator: Any, state: Any) -> None:
    _check_place(state)
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "set_state"):
        generator.set_state(state)
    else:
        getattr(generator, "bit_generator", generator).state = state


def is_generator(thing: Any) -> bool:
    if isinstance(thing, torch.Generator):
        return thing is not torch.default_generator
    if isinstance(thing, random.Random):
        return not isinstance(thing, random.SystemRandom)
    kinds = (numpy.random.Generator, numpy.random.RandomState, numpy.random.BitGenerator)
    return isinstance(thing, kinds) and thing is not numpy.random.mtrand._rand


def reached(roots: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every object that can be reached through attributes and small containers, once."""
    seen: set[int] = set()
    waiting = [(path, thing, 0) for path, thing in roots.items()]
    while waiting:
        path, thing, depth = waiting.pop(0)
        if id(thing) in seen or isinstance(thing, (*SCALARS, *LEFT_ALONE)):
            continue
        seen.add(id(thing))
        if len(seen) > MANY:
            return
        yield path, thing
        if depth < DEPTH and not is_generator(thing):
            waiting += [(f"{path}.{name}", inner, depth + 1) for name, inner in _parts(thing)]


def _parts(thing: Any) -> list[tuple[str, Any]]:
    if isinstance(thing, (list, tuple)):
        return [(str(index), inner) for index, inner in enumerate(thing)] if len(thing) <= CROWD else []
    if isinstance(thing, dict):
        return [(str(key), inner) for key, inner in thing.items()] if len(thing) <= CROWD else []
    if isinstance(thing, FunctionType):
        return _used_by(thing)
    if isinstance(thing, MethodType):
        return [("__self__", thing.__self__), ("__func__", thing.__func__)]
    if isinstance(thing, partial):
        return [("func", thing.func), ("args", thing.args), ("keywords", thing.keywords)]
    return [*_attributes(thing), *_used_by_class(type(thing))]


def _attributes(thing: Any) -> list[tuple[str, Any]]:
    """Those of the object, and what the class that the script wrote holds for all of them."""
    found = dict(getattr(thing, "__dict__", {}))
    for base in _written(type(thing)):
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            mangled = f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") else name
            if hasattr(thing, mangled):
                found.setdefault(name, getattr(thing, mangled))
        for name, value in vars(base).items():
            if is_generator(value) or isinstance(value, (list, tuple, dict)):
                found.setdefault(name, value)
    return list(found.items())


def _written(kind: type) -> list[type]:
    """The classes among its bases that come from no library."""
    return [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in LIBRARIES]


def _used_by_class(kind: type) -> list[tuple[str, Any]]:
    """What the methods of a class that the script wrote draw from beside the object: generators of its module."""
    functions = [one for base in _written(kind) for one in vars(base).values() if isinstance(one, FunctionType)]
    return [found for function in functions for found in _used_by(function)]


def _used_by(function: FunctionType) -> list[tuple[str, Any]]:
    """What a function has beside its arguments. Of its module only generators, functions and containers: other objects
    there belong to the training as much as to the data."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or ())
    enclosed = [(name, cell.cell_contents) for name, cell in cells if cell != _EMPTY]
    defaults = [("defaults", function.__defaults__), ("kwdefaults", function.__kwdefaults__)]
    named = ((name, function.__globals__.get(name)) for name in sorted(_names(function.__code__)))
    return [*enclosed, *defaults, *((name, thing) for name, thing in named if _may_draw(thing))]


def _names(code: CodeType) -> set[str]:
    """Also of functions and comprehensions inside."""
    inner = [_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*inner)


def _may_draw(thing: Any) -> bool:
    if isinstance(thing, FunctionType):
        return thing.__module__ is not None and thing.__module__.partition(".")[0] not in LIBRARIES
    return is_generator(thing) or type(thing) in (list, tuple, dict)


_EMPTY = CellType()


def _check_place(state: Any) -> None:
    """Refuses a place in a generator's numbers that is outside of them: neither NumPy nor torch looks, and the next draw
    would read whatever is in memory there."""
    if isinstance(state, torch.Tensor):
        if state.dtype == torch.uint8 and state.shape == (_OF_TORCH,):
            left, place = int(state[8:12].view(torch.int32)), int(state[16:24].view(torch.int64))
            _refuse_unless((left, place) == (1, 0) or (1 <= left <= TWISTER and left + place == TWISTER + 1))
    elif isinstance(state, dict):
        inner = state.get("state")
        place = inner.get("pos", 0) if isinstance(inner, dict) else 0
        _refuse_unless(_is_within(place, TWISTER) and _is_within(state.get("buffer_pos", 0), PHILOX))
    elif isinstance(state, (tuple, list)) and state and state[0] == "MT19937":
        _refuse_unless(len(state) > 2 and _is_within(state[2], TWISTER))


_OF_TORCH = torch.default_generator.get_state().numel()


def _is_within(place: Any, length: int) -> bool:
    return isinstance(place, int) and 0 <= place <= length


def _refuse_unless(fits: bool) -> None:
    if not fits:
        raise CheckpointError("the checkpoint has the state of a generator that no generator has")
