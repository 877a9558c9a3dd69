"""Whether the gradients that an optimizer stepped by were the mean over all processes, by what each of them recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from accel_migrate.proof.step.graph import Moment, Steps

TOLERANCE, COARSE_TOLERANCE = 1e-3, 5e-2  # of the norm; the second where some of it is in half precision


@dataclass(frozen=True, slots=True)
class Gradient:
    """Of one parameter, as projections on one direction, around a backward pass."""

    before: float
    added: float
    after: float
    norm: float


def gradients(moment: Moment) -> dict[int, Gradient]:
    return {row[0]: Gradient(*row[1:]) for row in moment.facts["gradients"]}


def last_backward(steps: Steps) -> Iterator[tuple[Moment, Moment]]:
    """Each step of an optimizer, with the backward pass before it."""
    latest = None
    for moment in steps.moments:
        if moment.kind == "backward":
            latest = moment
        elif moment.kind == "step" and latest is not None:
            yield moment, latest


def not_exchanged(ranks: Sequence[Steps], tolerance: float) -> str:
    """Which gradient is not the mean over the processes when its optimizer steps; empty when each is."""
    for moments in zip(*map(last_backward, ranks)):
        step = moments[0][0]
        every = [gradients(backward) for _, backward in moments]
        largest = max((each.norm for found in every for each in found.values()), default=0.0)
        for number in step.facts["parameters"]:
            own = [found[number] for found in every if number in found]
            if len(own) < len(ranks):
                return f"a gradient of parameter {number + 1} is not there on every process ({step.place})"
            mean = sum(each.before + each.added for each in own) / len(own)
            scale = max(max(each.norm for each in own), 1e-3 * largest)
            if any(abs(each.after - mean) > tolerance * scale for each in own):
                alone = all(abs(each.after - each.before - each.added) <= tolerance * scale for each in own)
                how = "is not exchanged" if alone else "is exchanged, but is not the mean of what the processes have"
                return f"the gradient of parameter {number + 1} {how} before the step at {step.place}"
    return ""


def apart(original: Steps, main: Steps, tolerance: float) -> str:
    """How the gradients of one step, before they are clipped, differ from the original's; empty when they do not."""
    for (step, one), (_, many) in zip(last_backward(original), last_backward(main)):
        expected, found = gradients(one), gradients(many)
        largest = max((each.norm for each in expected.values()), default=0.0)
        for number in step.facts["parameters"]:
            if number not in expected or number not in found:
                return f"parameter {number + 1} has a gradient on one process and none on {main.world}, or the reverse"
            a, b = expected[number], found[number]
            scale = max(a.norm, b.norm, 1e-3 * largest)
            if abs(a.after - b.after) > tolerance * scale or abs(a.norm - b.norm) > tolerance * scale:
                ratio = f"{b.norm / a.norm:.3g} times" if a.norm else f"{b.norm:.3g} and was"
                return (
                    f"the gradient of parameter {number + 1} at {step.place} has {ratio} "
                    f"the norm on {main.world} processes"
                )
        if step.facts["optimizer"] == main.optimizers - 1:
            break
    return ""
