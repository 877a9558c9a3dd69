"""Types of tensors by their names: each says a device too, so that a cast to one is a move."""

from __future__ import annotations

import re

_OF_CPU = re.compile(r"torch\.\w*Tensor")


def is_cpu_type(dotted: object) -> bool:
    """`torch.LongTensor`, and `torch.Tensor`, which is the default type; not `torch.cuda.LongTensor`, nor `torch.long`."""
    return isinstance(dotted, str) and _OF_CPU.fullmatch(dotted) is not None
