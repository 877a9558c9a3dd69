"""What a backward pass does to each gradient: what was there, what this process added, and what was there after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def watched(torch: Any, parameters: list[Any], register: Any) -> Iterator[list[list[Any]]]:
    """Rows of parameter, before, added and after, each a projection on one direction; and the norm at the end."""
    rows: list[list[Any]] = []
    added = [0.0] * len(parameters)
    before = [_projection(torch, each.grad) for each in parameters]

    def adds(index: int) -> Any:
        def hook(gradient: Any) -> None:
            added[index] += _projection(torch, gradient)

        return hook

    handles = [register(each, adds(index)) for index, each in enumerate(parameters) if each.requires_grad]
    try:
        yield rows
    finally:
        for handle in handles:
            handle.remove()
    for index, each in enumerate(parameters):
        if each.grad is not None:
            norm = float(torch.linalg.vector_norm(_dense(each.grad), dtype=torch.float64))
            rows.append([index, before[index], added[index], _projection(torch, each.grad), norm])


def _dense(gradient: Any) -> Any:
    return gradient.to_dense() if gradient.is_sparse else gradient


def _projection(torch: Any, gradient: Any) -> float:
    """A linear function of all entries, the same on every process."""
    if gradient is None:
        return 0.0
    with torch.no_grad():
        flat = _dense(gradient.detach()).double().reshape(-1)
        return float(flat @ torch.cos(torch.arange(1, len(flat) + 1, dtype=torch.float64, device=flat.device)))
