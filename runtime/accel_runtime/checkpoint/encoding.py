"""States as JSON with their tensors beside it: containers, numbers and strings, and nothing that could run."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor

from accel_runtime.errors import CheckpointError

State = Any  # a state has the shape its author gave it
Node = Any  # what json.loads returns


def encoded(state: State, tensors: dict[str, Tensor], place: str, allow_pickle: bool = False) -> Node:
    """The state for JSON; its tensors go into `tensors`. `place` names the state in a refusal.

    Plain values stand for themselves and everything else is an object with one key, which says what it is.
    """
    if state is None or type(state) in (bool, int, float, str):
        return state
    if isinstance(state, Tensor):
        return {"tensor": _kept(state.detach(), tensors)}
    if isinstance(state, (numpy.ndarray, numpy.generic)) and state.dtype.kind in "biuf":
        kind = "array" if isinstance(state, numpy.ndarray) else "scalar"
        return {kind: _kept(torch.from_numpy(numpy.array(state)), tensors)}
    if isinstance(state, dict):
        items = [[key, value] for key, value in state.items()]
        return {"dict": encoded_items(items, tensors, place, allow_pickle)}
    for kind, container in CONTAINERS.items():
        if type(state) is container:
            items = [encoded(item, tensors, f"{place}[{index}]", allow_pickle) for index, item in enumerate(state)]
            return {kind: items}
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


def encoded_items(items: list[Any], tensors: dict[str, Tensor], place: str, allow_pickle: bool) -> list[Node]:
    """Pairs and not a JSON object: keys may be numbers."""
    return [
        [encoded(key, tensors, f"a key of {place}"), encoded(value, tensors, f"{place}[{key!r}]", allow_pickle)]
        for key, value in items
    ]


def decoded(node: Node, tensors: dict[str, Tensor], place: str, allow_pickle: bool = False) -> State:
    """The state again."""
    if not isinstance(node, dict):
        return node
    ((kind, content),) = node.items()
    if kind == "dict":
        pairs = [[decoded(part, tensors, place, allow_pickle) for part in pair] for pair in content]
        return dict(pairs)
    if kind in CONTAINERS:
        return CONTAINERS[kind](decoded(item, tensors, place, allow_pickle) for item in content)
    if kind == "pickle":
        if not allow_pickle:
            raise CheckpointError(
                f"{place} holds a pickled object, which could run code; pass allow_pickle=True if you trust its author"
            )
        return pickle.loads(tensors[content].numpy().tobytes())
    return LEAVES[kind](tensors[content] if kind in ("tensor", "array", "scalar") else content)


CONTAINERS: dict[str, Callable[..., Any]] = {"list": list, "tuple": tuple, "set": set}
LEAVES: dict[str, Callable[[Any], Any]] = {
    "tensor": lambda tensor: tensor,
    "array": lambda tensor: tensor.numpy(),
    "scalar": lambda tensor: tensor.numpy()[()],
    "bytes": bytes.fromhex,
    "dtype": lambda name: getattr(torch, name),
    "device": torch.device,
}


def _kept(tensor: Tensor, tensors: dict[str, Tensor]) -> str:
    name = str(len(tensors))
    tensors[name] = tensor
    return name
