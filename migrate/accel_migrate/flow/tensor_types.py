"""Types of tensors by their names: each says a device too, so that a cast to one is a move."""

from __future__ import annotations

import re
from collections.abc import Iterable

_OF_CPU = re.compile(r"torch\.\w*Tensor")


def is_cpu_type(dotted: object) -> bool:
    """`torch.LongTensor`, and `torch.Tensor`, which is the default type; not `torch.cuda.LongTensor`, nor `torch.long`."""
    return isinstance(dotted, str) and _OF_CPU.fullmatch(dotted) is not None


def stays_on_cpu(types: Iterable[object]) -> bool:
    """Whether a type that may be any of these is one of the CPU; chosen beside one of CUDA, it goes by the machine."""
    named = [dotted for dotted in types if isinstance(dotted, str)]
    return any(map(is_cpu_type, named)) and not any(dotted.startswith("torch.cuda.") for dotted in named)
