"""States as JSON with their tensors beside it: containers, numbers and strings, and nothing that could run."""

from __future__ import annotations

import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable
from itertools import groupby
from typing import Any

import numpy
import torch
from torch import Tensor

from accel_runtime.errors import CheckpointError

State = Any  # a state has the shape its author gave it
Node = Any  # what json.loads returns

SEQUENCES: dict[str, Callable[..., Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "Size": torch.Size,
}
MAPPINGS: dict[str, Callable[..., Any]] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}
# What a defaultdict may make of a missing key.
FACTORIES: dict[str, Any] = {
    "None": None,
    **{kind.__name__: kind for kind in (bool, dict, float, int, list, set, str, tuple)},
}
DTYPES = {str(one).removeprefix("torch."): one for one in vars(torch).values() if isinstance(one, torch.dtype)}
COLLISIONS = 1000  # keys with one hash: so many do not come about by chance, and more would take hours


def encoded(state: State, tensors: dict[str, Tensor], place: str, allow_pickle: bool = False) -> Node:
    """The state for JSON; its tensors go into `tensors`. `place` names the state in a refusal.

    Plain values stand for themselves and everything else is an object with one key, which says what it is.
    """
    if state is None or type(state) in (bool, int, float, str):
        return state
    if isinstance(state, Tensor):
        return _encoded_tensor(state.detach(), tensors)
    if isinstance(state, (numpy.ndarray, numpy.generic)) and state.dtype.kind in "biuf":
        kind = "array" if isinstance(state, numpy.ndarray) else "scalar"
        return {kind: _kept(torch.from_numpy(numpy.array(state)), tensors)}

    def items_of(sequence: Any) -> list[Node]:
        return [encoded(item, tensors, f"{place}[{index}]", allow_pickle) for index, item in enumerate(sequence)]

    for kind, mapping in MAPPINGS.items():
        if type(state) is mapping:
            return {kind: _encoded_items(state, tensors, place, allow_pickle)}
    if type(state) is defaultdict:
        for name, factory in FACTORIES.items():
            if state.default_factory is factory:
                return {"defaultdict": [name, _encoded_items(state, tensors, place, allow_pickle)]}
    for kind, sequence in SEQUENCES.items():
        if type(state) is sequence:
            return {kind: items_of(state)}
    if type(state) is deque:
        return {"deque": [state.maxlen, items_of(state)]}
    if type(state) is bytes:
        return {"bytes": state.hex()}
    if isinstance(state, (torch.dtype, torch.device)):
        return {type(state).__name__: str(state).removeprefix("torch.")}
    if allow_pickle:
        pickled = torch.frombuffer(bytearray(pickle.dumps(state)), dtype=torch.uint8)
        return {"pickle": _kept(pickled, tensors)}
    raise CheckpointError(
        f"{place} is a {type(state).__name__}, and checkpoints hold tensors, numbers, strings and containers of these; "
        "leave it out of the state, or pass allow_pickle=True to save_state and load_state"
    )


def decoded(node: Node, tensors: dict[str, Tensor], place: str, allow_pickle: bool = False) -> State:
    """The state again; never anything that can be called."""
    if not isinstance(node, dict):
        if isinstance(node, list):
            raise CheckpointError(f"{place} has a list where a value is due")
        return node
    ((kind, content),) = node.items()

    def items_of(nodes: list[Node]) -> list[State]:
        return [decoded(one, tensors, place, allow_pickle) for one in nodes]

    def pairs_of(nodes: list[Node]) -> dict[Hashable, State]:
        keys = items_of([key for key, _ in nodes])
        return dict(zip(_spread(keys, place), items_of([value for _, value in nodes])))

    if kind in MAPPINGS:
        return MAPPINGS[kind](pairs_of(content))
    if kind == "defaultdict":
        factory, pairs = content
        return defaultdict(FACTORIES[factory], pairs_of(pairs))
    if kind in SEQUENCES:
        items = items_of(content)
        return SEQUENCES[kind](_spread(items, place) if kind in ("set", "frozenset") else items)
    if kind == "deque":
        length, nodes = content
        return deque(items_of(nodes), length)
    if kind == "sparse":
        return _decoded_sparse(content, tensors)
    if kind == "pickle":
        if not allow_pickle:
            raise CheckpointError(
                f"{place} holds a pickled object, which could run code; pass allow_pickle=True if you trust its author"
            )
        return pickle.loads(tensors[content].numpy().tobytes())
    return LEAVES[kind](tensors[content] if kind in ("tensor", "array", "scalar") else content)


LEAVES: dict[str, Callable[[Any], Any]] = {
    "tensor": lambda tensor: tensor,
    "array": lambda tensor: tensor.numpy(),
    "scalar": lambda tensor: tensor.numpy()[()],
    "bytes": bytes.fromhex,
    "dtype": DTYPES.__getitem__,
    "device": lambda name: torch.device(str(name)),
}


def _encoded_items(state: dict[Any, Any], tensors: dict[str, Tensor], place: str, allow_pickle: bool) -> list[Node]:
    """Pairs and not a JSON object: keys may be numbers."""
    return [
        [encoded(key, tensors, f"a key of {place}"), encoded(value, tensors, f"{place}[{key!r}]", allow_pickle)]
        for key, value in state.items()
    ]


def _encoded_tensor(tensor: Tensor, tensors: dict[str, Tensor]) -> Node:
    if tensor.layout is not torch.sparse_coo:
        return {"tensor": _kept(tensor, tensors)}
    parts = [_kept(part.detach(), tensors) for part in (tensor._indices(), tensor._values())]
    return {"sparse": [*parts, list(tensor.shape), tensor.is_coalesced()]}


def _decoded_sparse(content: list[Any], tensors: dict[str, Tensor]) -> Tensor:
    indices, values, shape, coalesced = content
    return torch.sparse_coo_tensor(
        tensors[indices], tensors[values], shape, check_invariants=True, is_coalesced=bool(coalesced)
    )


def _spread(keys: list[Any], place: str) -> list[Any]:
    """The keys, unless they were made to fall on one another: a dictionary of those takes the square of the time."""
    if len(keys) > COLLISIONS and max(len(list(same)) for _, same in groupby(sorted(map(hash, keys)))) > COLLISIONS:
        raise CheckpointError(f"{place} has keys that were made to collide")
    return keys


def _kept(tensor: Tensor, tensors: dict[str, Tensor]) -> str:
    name = str(len(tensors))
    tensors[name] = tensor
    return name
