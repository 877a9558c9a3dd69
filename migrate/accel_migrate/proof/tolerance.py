"""How far apart two right runs may come: rounding, and what the script itself makes of rounding.

Sums in another order are off in their last bits, and training carries that on from step to step: some scripts hardly,
others tenfold with every step. So what is allowed comes from the original, run once more with every weight moved to a
neighbouring number after each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from accel_migrate.proof.check import distance

ROUNDING = 1e-5  # relative, of one step: sums of some thousand numbers in another order
HALF = 2e-2  # of losses that were computed in half precision, which keeps two to three decimal digits
TIMES = 10  # how often the script's own answer to rounding is allowed
BLUNT = 1e-2  # relative: where more than this would be allowed, nothing is shown any more


def limits(expected: Sequence[float], rounding: float, nudged: Sequence[float] | None = None) -> list[float]:
    """What is allowed of each value; one that is nearly nothing is as good as its neighbours."""
    least = 1e-2 * _scale(expected)
    rounded = [rounding * max(abs(value), least) for value in expected]
    if nudged is None:
        return rounded
    gaps = [distance(a, b) for a, b in zip(expected, nudged)]
    moved = [TIMES * gap for gap in accumulate(gaps, max)]
    return [max(pair) for pair in zip(rounded, moved)]


def sharp(expected: Sequence[float], allowed: Sequence[float]) -> int:
    """How many values, from the first on, are told from wrong ones by what is allowed."""
    least = 1e-2 * _scale(expected)
    blunt = (i for i, (a, b) in enumerate(zip(expected, allowed)) if b > BLUNT * max(abs(a), least))
    return next(blunt, min(len(expected), len(allowed)))


def _scale(values: Sequence[float]) -> float:
    return max(map(abs, values), default=1.0)
