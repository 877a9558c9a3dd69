"""Small trainings, written down as the recorder would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accel_migrate.proof.record import Event, Trace

BATCHES = ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11))


def trace(
    losses: Sequence[float] = (1.0, 0.5, 0.25),
    batches: Sequence[Sequence[int]] = BATCHES,
    rates: Sequence[float] = (0.1, 0.1, 0.1),
    gradients: Sequence[float] = (3.0, 2.0, 1.0),
    printed: Sequence[str] = (),
    rank: int = 0,
    weights: str = "w",
    cut: bool = False,
    **of_losses: Any,
) -> Trace:
    """A loop of batch, loss and step; what it prints comes at the end, out of an evaluation."""
    events = []
    for loss, batch, rate, gradient in zip(losses, batches, rates, gradients):
        rows = [f"row {index}" for index in batch]
        seen = {"indices": list(batch), "rows": rows, "number": 1, "trains": True, "random": False}
        facts = {"value": float(loss).hex(), "forms": [], "random": False, "device": "cpu", "gpus": 0, **of_losses}
        events += [
            Event("batch", "train.py", 10, seen),
            Event("loss", "train.py", 12, facts),
            Event("step", "train.py", 13, {"rates": [rate], "gradient": float(gradient).hex()}),
        ]
    events += [
        Event("printed", "train.py", 20, {"text": text, "evaluation": True, "random": False}) for text in printed
    ]
    return Trace(rank, (*events, Event("end", "", 0, {"parameters": weights, "cut": cut})))


def halves(values: Sequence[Sequence[int]]) -> tuple[list[Sequence[int]], list[Sequence[int]]]:
    """What two processes see of each batch."""
    return [batch[: len(batch) // 2] for batch in values], [batch[len(batch) // 2 :] for batch in values]
