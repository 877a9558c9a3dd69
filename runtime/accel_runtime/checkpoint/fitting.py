"""Whether a state may be put into an object: it has the keys and the types of what the object has itself.

Many objects take a state over as attributes. A state with a key of its own choosing could put a value where the object
has a method, so a key is either known or refused, and what a checkpoint holds is data at every place.
"""

from __future__ import annotations

import numbers
import re
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from accel_runtime.checkpoint.encoding import State
from accel_runtime.errors import CheckpointError

SEQUENCES = (list, tuple, set, frozenset, deque, torch.Size)
RETIRED = {"verbose", "_is_initial", "_get_lr_called_within_step"}
SPECIAL = (Counter, defaultdict)  # dictionaries with methods that a plain one lacks


def check_fits(saved: State, own: State, place: str) -> None:
    """Refuses a state that differs in a key or in a type; lists may be longer or shorter."""
    if saved is None or own is None:
        check_data(saved, place)
    elif isinstance(own, Mapping):
        _check_mapping(saved, own, place)
    elif isinstance(own, SEQUENCES):
        _check_type(saved, own, place)
        examples = list(own)
        for index, item in enumerate(saved):
            example = examples[min(index, len(examples) - 1)] if examples else None
            check_fits(item, example, f"{place}[{index}]")
    elif _is_number(own):
        if not _is_number(saved):
            _refuse(saved, own, place)
    else:
        _check_type(saved, own, place)


def check_data(saved: State, place: str) -> None:
    """Refuses what is not data through and through."""
    if isinstance(saved, Mapping):
        for key, value in saved.items():
            check_data(key, f"a key of {place}")
            check_data(value, f"{place}[{key!r}]")
    elif isinstance(saved, SEQUENCES):
        for item in saved:
            check_data(item, place)
    elif callable(saved):
        raise CheckpointError(f"{place} is a {type(saved).__name__}, which can be called; nothing was changed")


def check_optimizer_state(saved: State, optimizer: Optimizer, place: str) -> None:
    """What an optimizer keeps of a weight comes into being with the first step, so only the rest can be compared."""
    own = optimizer.state_dict()
    _check_type(saved, own, place)
    _check_known(saved, own, place)
    weights = sum(len(group["params"]) for group in own["param_groups"])
    states, groups = saved.get("state"), saved.get("param_groups")
    if not isinstance(states, dict) or not isinstance(groups, list) or len(groups) != len(own["param_groups"]):
        raise CheckpointError(f"{place} is not the state of an optimizer; nothing was changed")
    for number, state in states.items():
        if type(number) is not int or not 0 <= number < weights or not isinstance(state, dict):
            raise CheckpointError(f"{place}['state'] has no weight {str(number)[:20]!r}; nothing was changed")
    check_data(states, f"{place}['state']")
    for index, (group, mine) in enumerate(zip(groups, own["param_groups"])):
        where = f"{place}['param_groups'][{index}]"
        _check_type(group, mine, where)
        for key, value in group.items():
            # Schedulers add keys of theirs when they are made, which may be later.
            check_fits(value, mine.get(key), f"{where}[{key!r}]")
    for key in own.keys() - {"state", "param_groups"}:
        check_fits(saved.get(key), own[key], f"{place}[{key!r}]")


def check_scheduler(saved: State, scheduler: Any, place: str) -> None:
    own = scheduler.state_dict()
    _leave_out_retired(saved, own)
    check_fits(saved, own, place)


def check_object(saved: State, thing: Any, place: str) -> None:
    """A registered object's state grows as its author likes; but no key of it may be the name of a method."""
    if isinstance(thing, Optimizer):
        check_optimizer_state(saved, thing, place)
    elif isinstance(thing, LRScheduler):
        check_scheduler(saved, thing, place)
    else:
        check_data(saved, place)
        if isinstance(saved, Mapping) and not isinstance(thing, Module):
            own = thing.state_dict()
            known = own.keys() if isinstance(own, Mapping) else ()
            for key in saved:
                if isinstance(key, str) and key not in known and (hasattr(type(thing), key) or key.startswith("__")):
                    raise CheckpointError(
                        f"{place} has {key!r}, which is a name of the class {type(thing).__name__} and not of its state; "
                        "nothing was changed"
                    )


def check_trackers(saved: State, own: Mapping[str, State], place: str) -> None:
    """Of each tracker a number or the name of a run; those that have begun are compared."""
    _check_type(saved, {}, place)
    for name, state in saved.items():
        _check_type(state, {}, f"{place}[{name!r}]")
        check_fits(state, own.get(name), f"{place}[{name!r}]")
        for key, value in state.items():
            if isinstance(value, str) and not re.fullmatch(r"[\w-]{1,128}", value):
                raise CheckpointError(f"{place}[{name!r}][{key!r}] is not the name of a run; nothing was changed")


def _leave_out_retired(saved: State, own: State) -> None:
    """Takes flags out that schedulers of another version of torch have, also of schedulers in a scheduler."""
    if isinstance(saved, dict) and isinstance(own, dict):
        for name in RETIRED & (saved.keys() - own.keys()):
            del saved[name]
        _leave_out_retired(saved.get("_schedulers"), own.get("_schedulers"))
    elif isinstance(saved, list) and isinstance(own, list):
        for one, other in zip(saved, own):
            _leave_out_retired(one, other)


def _check_mapping(saved: State, own: Mapping[Any, Any], place: str) -> None:
    _check_type(saved, own, place)
    if isinstance(own, Counter):
        check_data(saved, place)
        return
    _check_known(saved, own, place)
    for key, value in saved.items():
        check_fits(value, own[key], f"{place}[{key!r}]")


def _check_known(saved: Mapping[Any, Any], own: Mapping[Any, Any], place: str) -> None:
    if foreign := [key for key in saved if key not in own]:
        raise CheckpointError(
            f"{place} has {str(foreign[0])[:100]!r}, which the object of this run has not; nothing was changed. If you "
            "trust the author of the checkpoint, pass allow_pickle=True"
        )


def _check_type(saved: State, own: State, place: str) -> None:
    # A tensor is a tensor, and a dictionary a dictionary: some states are an OrderedDict with attributes.
    alike = [kind for kind in (Tensor, dict) if isinstance(own, kind)]
    if type(saved) is not type(own) and not (alike and type(own) not in SPECIAL and isinstance(saved, alike[0])):
        _refuse(saved, own, place)


def _refuse(saved: State, own: State, place: str) -> None:
    raise CheckpointError(
        f"{place} is a {type(saved).__name__}, and in this run a {type(own).__name__}; nothing was changed. If you trust "
        "the author of the checkpoint, pass allow_pickle=True"
    )


def _is_number(value: object) -> bool:
    if isinstance(value, (Tensor, numpy.ndarray)):
        return value.ndim == 0 or value.shape == (1,)
    return isinstance(value, (numbers.Number, numpy.generic))
