"""Two runs beside each other: pure functions from what was recorded to what agrees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from accel_migrate.proof import figures
from accel_migrate.proof.check import Check, Difference, Quantity, Result, distance, exact, near
from accel_migrate.proof.reasons import draws, other_passes, reason, rows_in, scaled_rates
from accel_migrate.proof.record import Event, Trace

# Relative. Sums in another order are off in the last bits, and training carries that on from step to step.
TOLERANCE = 1e-4
# Of losses that were computed in half precision: it keeps two to three decimal digits.
COARSE_TOLERANCE = 2e-2
SPREAD = 3.0  # how often a script's own spread is allowed
RATE_TOLERANCE = 1e-9


def on_one(original: Trace, again: Trace, migrated: Trace) -> list[Check]:
    """One process: equal to the bit, or within the spread of a script that does not repeat itself."""
    if repeats(original, again):
        checks = [
            _samples_on_one(original, migrated),
            exact(Quantity.LOSSES, 1, _values(original), _values(migrated), original.of("loss"), migrated.of("loss")),
            exact(Quantity.GRADIENTS, 1, _norms(original), _norms(migrated), original.of("step"), migrated.of("step")),
        ]
    else:
        checks = _within_spread(original, again, migrated)
    checks.append(exact(Quantity.RATES, 1, original.rates, migrated.rates, original.of("step"), migrated.of("step")))
    checks.append(figures.compare(original.of("printed"), again.of("printed"), migrated.of("printed"), 1, True))
    if repeats(original, again) and original.parameters:
        checks.append(_weights(1, original.parameters, [migrated]))
    return checks


def repeats(original: Trace, again: Trace) -> bool:
    return _bits(original) == _bits(again) and original.parameters == again.parameters


def _within_spread(original: Trace, again: Trace, migrated: Trace) -> list[Check]:
    """The losses alone: what else a script draws anew is not known."""
    gaps = [distance(a, b) for a, b in zip(_values(original), _values(again))]
    spread = [SPREAD * gap for gap in accumulate(gaps, max)]
    note = "the original does not repeat itself; compared within three times the spread of its own two runs"
    count = len(spread)
    return [
        near(
            Quantity.LOSSES,
            1,
            _values(original)[:count],
            _values(migrated)[:count],
            spread,
            original.of("loss"),
            migrated.of("loss"),
            note,
        )
    ]


def on_many(original: Trace, again: Trace, ranks: Sequence[Trace]) -> list[Check]:
    """Several processes that share out each batch: together they see and compute what one did."""
    main, count = ranks[0], len(ranks)
    losses = _losses_on_many(original, ranks) if repeats(original, again) else []
    if any(check.result is Result.NOT_COMPARED for check in losses):
        # A script that trains otherwise may also end earlier or later; up to there it must do the same.
        least = min(len(trace.losses) for trace in (original, *ranks))
        original, ranks = original.until(least), [rank.until(least) for rank in ranks]
        main = ranks[0]
    checks = [_samples_on_many(original, ranks), *losses, _rates_on_many(original, main, count)]
    checks.append(_weights(count, main.parameters, ranks[1:]))
    return checks


def weights_on_many(ranks: Sequence[Trace]) -> Check:
    """That all processes end with the same weights, whatever they trained on."""
    return _weights(len(ranks), ranks[0].parameters, ranks[1:])


def figures_on_many(original: Trace, again: Trace, main: Trace, processes: int) -> Check:
    """What the evaluations of the main process print, and that no other figure is of a share and divided by all."""
    first, second, found = (
        [event for event in trace.of("printed") if event.facts["evaluation"]] for trace in (original, again, main)
    )
    check = figures.compare(first, second, found, processes, False)
    at = check.difference.before if check.difference else None
    if at is not None and at.facts["random"]:
        why = "random numbers are drawn in the evaluation, by each process its own"
        return replace(check, result=Result.NOT_COMPARED, note=why)
    if check.holds:
        smaller = figures.shrunk(original.of("printed"), again.of("printed"), main.of("printed"), processes)
        if smaller is not None:
            return Check(Quantity.PRINTED, processes, Result.DIFFERS, check.agreed, check.total, difference=smaller)
    return check


def _losses_on_many(original: Trace, ranks: Sequence[Trace]) -> list[Check]:
    count, main = len(ranks), ranks[0]
    relative = COARSE_TOLERANCE if main.has_fact("autocast") else TOLERANCE
    expected, norms = _values(original), _norms(original)
    scale = max(map(abs, expected), default=1.0)
    means = [sum(values) / count for values in zip(*map(_values, ranks))]
    losses = near(
        Quantity.LOSSES,
        count,
        expected,
        means,
        # A loss that is nearly nothing is as good as its neighbours.
        [relative * max(abs(value), 1e-2 * scale) for value in expected],
        original.of("loss"),
        main.of("loss"),
    )
    widest = max(norms, default=1.0)
    tolerances = [10 * relative * max(norm, 1e-2 * widest) for norm in norms]
    gradients = near(Quantity.GRADIENTS, count, norms, _norms(main), tolerances, original.of("step"), main.of("step"))
    return [_excused(check, original, ranks) for check in (losses, gradients)]


def _excused(check: Check, original: Trace, ranks: Sequence[Trace]) -> Check:
    """A difference that the runs themselves explain is a comparison that cannot be made."""
    if check.holds or check.difference is None:
        return check
    step = check.difference.number - 1
    if check.quantity is Quantity.GRADIENTS:
        step = _losses_before(original, step)
    why = reason(original, ranks, step)
    return replace(check, result=Result.NOT_COMPARED, note=why) if why else check


def _losses_before(trace: Trace, step: int) -> int:
    """The index of the last loss before the step of an optimizer."""
    seen = -1
    for event in trace.events:
        if event.kind == "loss":
            seen += 1
        elif event.kind == "step":
            if not step:
                break
            step -= 1
    return max(seen, 0)


def _samples_on_one(original: Trace, migrated: Trace) -> Check:
    expected, found = ([loss.samples for loss in trace.losses] for trace in (original, migrated))
    if not any(loss.batches for loss in original.losses):
        return Check(Quantity.SAMPLES, 1, Result.NOT_COMPARED, note="no loader")
    places = [_first_batches(trace) for trace in (original, migrated)]
    return exact(Quantity.SAMPLES, 1, expected, found, *places)


def _first_batches(trace: Trace) -> list[Event]:
    """For each loss, the first batch that it was computed from, or the loss itself."""
    return [loss.batches[0] if loss.batches else trace.events[loss.index] for loss in trace.losses]


def _samples_on_many(original: Trace, ranks: Sequence[Trace]) -> Check:
    """Every sample of a step was seen once, by one process; filling at the end is left aside."""
    count, total = len(ranks), len(original.losses)
    if not any(loss.batches for loss in original.losses):
        return Check(Quantity.SAMPLES, count, Result.NOT_COMPARED, note="no loader")
    if any(loss.samples is None for loss in original.losses):
        return Check(Quantity.SAMPLES, count, Result.NOT_COMPARED, note="the samples of a stream have no indices")
    full = max(rows_in(loss) for loss in original.losses)
    for step, loss in enumerate(original.losses):
        parts = [rank.losses[step].samples or () for rank in ranks if step < len(rank.losses)]
        if _shared_out(loss.samples or (), parts, full):
            continue
        moved = draws(original.losses[:step]) or other_passes(original, ranks[0], step)
        if moved and parts and _each_once(ranks, full):
            note = "in another order from there on: what the script draws, or passes over, moves its shuffle"
            return Check(Quantity.SAMPLES, count, Result.EQUAL, step, total, note=note)
        events = [next(iter(_first_batches(trace)[step : step + 1]), None) for trace in (original, ranks[0])]
        found = " | ".join(_few(part) for part in parts) or "nothing"
        difference = Difference(step + 1, _few(loss.samples or ()), found, *events)
        return Check(Quantity.SAMPLES, count, Result.DIFFERS, step, total, difference=difference)
    return Check(Quantity.SAMPLES, count, Result.EQUAL, total, total)


def _shared_out(whole: Sequence[object], parts: Sequence[Sequence[object]], full: int) -> bool:
    expected, together = Counter(whole), Counter(index for part in parts for index in part)
    may_be_filled = len(whole) < full or len(whole) % max(len(parts), 1) > 0
    equal_shares = len({len(part) for part in parts}) == 1
    return equal_shares and not expected - together and (may_be_filled or not together - expected)


def _each_once(ranks: Sequence[Trace], full: int) -> bool:
    """In each pass over the data no two processes see the same sample, but for the filling of one batch."""
    seen: dict[int, Counter[object]] = {}
    for rank in ranks:
        for batch in {id(batch): batch for loss in rank.losses for batch in loss.batches}.values():
            seen.setdefault(batch.facts["number"], Counter()).update(batch.facts["indices"] or ())
    return all(samples.total() - len(samples) < full for samples in seen.values())


def _few(samples: Sequence[object]) -> str:
    shown = ", ".join(str(index) for index in samples[:4])
    return f"{shown}, ... ({len(samples)})" if len(samples) > 4 else shown or "none"


def _rates_on_many(original: Trace, main: Trace, count: int) -> Check:
    expected, found = ([rate for rates in trace.rates for rate in rates] for trace in (original, main))
    factor = scaled_rates(original, main, count)
    if factor:
        note = f"the script makes its optimizer with {factor:g} times the learning rate on {count} processes"
        return Check(Quantity.RATES, count, Result.NOT_COMPARED, note=note)
    groups = len(original.rates[0]) if original.rates else 1
    before, after = ([event for event in trace.of("step") for _ in range(groups)] for trace in (original, main))
    note = ""
    if (original.was_cut or main.was_cut) and len(expected) != len(found):
        # A script may gather fewer batches for each step when it has more processes: the run was cut by its losses.
        note = f"{len(main.rates)} steps where the original came to {len(original.rates)}"
        expected, found = (rates[: min(len(expected), len(found))] for rates in (expected, found))
    tolerances = [RATE_TOLERANCE * abs(rate) for rate in expected]
    return near(Quantity.RATES, count, expected, found, tolerances, before, after, note)


def _weights(processes: int, expected: str, others: Sequence[Trace]) -> Check:
    """On one process those of the original; on several the same on each."""
    for trace in others:
        if trace.parameters != expected:
            last = trace.of("step")[-1:]
            difference = Difference(len(trace.rates), expected, trace.parameters, None, last[0] if last else None)
            return Check(Quantity.WEIGHTS, processes, Result.DIFFERS, 0, 1, difference=difference)
    return Check(Quantity.WEIGHTS, processes, Result.EQUAL, 1, 1)


def _values(trace: Trace) -> list[float]:
    return [loss.value for loss in trace.losses]


def _norms(trace: Trace) -> list[float]:
    return [float.fromhex(norm) for norm in trace.gradients]


def _bits(trace: Trace) -> list[str]:
    return [loss.bits for loss in trace.losses]
