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
    rows.extend(_row(torch, each, index, before[index], added[index]) for index, each in _with_gradients(parameters))


def completed(torch: Any, parameters: list[Any], rows: list[list[Any]]) -> None:
    """What the gradients became since, in rows that are known."""
    parts = {row[0]: row[1:3] for row in rows}
    rows[:] = [_row(torch, each, index, *parts.get(index, (0.0, 0.0))) for index, each in _with_gradients(parameters)]


def _with_gradients(parameters: list[Any]) -> list[tuple[int, Any]]:
    return [(index, each) for index, each in enumerate(parameters) if each.grad is not None]


def _row(torch: Any, parameter: Any, index: int, before: float, added: float) -> list[Any]:
    norm = float(torch.linalg.vector_norm(_dense(parameter.grad), dtype=torch.float64))
    return [index, before, added, _projection(torch, parameter.grad), norm]


def _dense(gradient: Any) -> Any:
    return gradient.to_dense() if gradient.is_sparse else gradient


def _projection(torch: Any, gradient: Any) -> float:
    """A linear function of all entries, the same on every process."""
    if gradient is None:
        return 0.0
    with torch.no_grad():
        flat = _dense(gradient.detach()).double().reshape(-1)
        return float(flat @ torch.cos(torch.arange(1, len(flat) + 1, dtype=torch.float64, device=flat.device)))
