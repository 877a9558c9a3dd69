"""Two runs beside each other: pure functions from what was recorded to what agrees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from itertools import accumulate

from accel_migrate.proof import figures, tolerance
from accel_migrate.proof.check import Check, Difference, Quantity, Result, distance, exact, near
from accel_migrate.proof.reasons import draws, other_passes, reason, rows_in, scaled_rates
from accel_migrate.proof.record import Event, Trace

SPREAD = 3.0  # how often a script's own spread is allowed
RATE_TOLERANCE = 1e-9
Nudged = Callable[[], Trace | None]  # the original with its weights off by rounding, run when it is asked for


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


def on_many(original: Trace, again: Trace, ranks: Sequence[Trace], nudged: Nudged = lambda: None) -> list[Check]:
    """Several processes that share each batch: together they see and compute what one did."""
    original, *ranks = _without_looks(original, ranks)
    main, count = ranks[0], len(ranks)
    losses = _losses_on_many(original, ranks, nudged) if repeats(original, again) else []
    if any(check.result is Result.NOT_COMPARED for check in losses):
        # A script that trains otherwise may also end earlier or later; up to there it must do the same.
        least = min(len(trace.losses) for trace in (original, *ranks))
        original, ranks = original.until(least), [rank.until(least) for rank in ranks]
        main = ranks[0]
    checks = [_samples_on_many(original, ranks), *losses, _rates_on_many(original, main, count)]
    checks.append(_weights(count, main.parameters, ranks[1:]))
    return checks


def _without_looks(original: Trace, ranks: Sequence[Trace]) -> list[Trace]:
    """The runs without batches that a script looked at before it trained: of a pass of one batch, whole on every process."""
    passes = [_passes(trace) for trace in (original, *ranks)]
    looks = {
        number
        for number, batches in passes[0].items()
        if len(batches) == 1 and all(others.get(number) == batches for others in passes[1:])
    }
    if looks == passes[0].keys():
        return [original, *ranks]
    return [
        replace(trace, events=tuple(e for e in trace.events if e.kind != "batch" or e.facts["number"] not in looks))
        for trace in (original, *ranks)
    ]


def _passes(trace: Trace) -> dict[int, list[object]]:
    """The samples of each batch that losses were computed from, by the pass over a loader that it came from."""
    found: dict[int, list[object]] = {}
    for batch in (batch for loss in trace.losses for batch in loss.batches):
        found.setdefault(batch.facts["number"], []).append(batch.facts["indices"])
    return found


def weights_on_many(ranks: Sequence[Trace]) -> Check:
    """That all processes end with the same weights, whatever they trained on."""
    return _weights(len(ranks), ranks[0].parameters, ranks[1:])


def figures_on_many(
    original: Trace, again: Trace, main: Trace, processes: int, varying: Set[tuple[str, int]] = frozenset()
) -> Check:
    """What the evaluations of the main process print, and that no other figure is of a share and divided by all."""
    first, second, found = (
        [event for event in trace.of("printed") if event.facts["evaluation"]] for trace in (original, again, main)
    )
    check = figures.compare(first, second, found, processes, False, varying)
    at = check.difference.before if check.difference else None
    if at is not None and at.facts["random"]:
        why = "random numbers are drawn in the evaluation, by each process its own"
        return replace(check, result=Result.NOT_COMPARED, note=why)
    if check.holds:
        all_of = [trace.of("printed") for trace in (original, again, main)]
        smaller = figures.shrunk(all_of[0], all_of[1], all_of[2], processes, varying)
        if smaller is not None:
            return Check(Quantity.PRINTED, processes, Result.DIFFERS, check.agreed, check.total, difference=smaller)
    return check


def _losses_on_many(original: Trace, ranks: Sequence[Trace], nudged: Nudged) -> list[Check]:
    """Alike but for rounding; where that does not hold, but for what rounding does to the original itself."""
    count, main = len(ranks), ranks[0]
    means = [sum(values) / count for values in zip(*map(_values, ranks))]
    events = [(original.of(kind), main.of(kind)) for kind in ("loss", "step")]
    runs = (
        (Quantity.LOSSES, _values(original), means, _values, *events[0]),
        (Quantity.GRADIENTS, _norms(original), _norms(main), _norms, *events[1]),
    )
    allowed = tolerance.HALF if main.has_fact("autocast") else tolerance.ROUNDING
    times = {Quantity.LOSSES: 1, Quantity.GRADIENTS: 10}

    def compared(moved: Trace | None) -> list[Check]:
        checks = []
        for quantity, expected, found, read, before, after in runs:
            limits = tolerance.limits(expected, times[quantity] * allowed, read(moved) if moved else None)
            sharp = tolerance.sharp(expected, limits) if moved else len(expected)
            check = near(quantity, count, expected[:sharp], found[:sharp] if moved else found, limits, before, after)
            checks.append(_from_there_on(check, sharp, len(expected)) if moved else check)
        return checks

    checks = compared(None)
    if not all(check.holds for check in checks) and not main.has_fact("autocast"):
        moved = nudged()
        checks = compared(moved) if moved is not None else checks
    return [_excused(check, original, ranks) for check in checks]


def _from_there_on(check: Check, sharp: int, total: int) -> Check:
    """What was allowed came from the script's own sensitivity; from a step on that may cover anything."""
    note = f"within {tolerance.TIMES} times what rounding does to the original"
    if sharp == total or not check.holds:
        return replace(check, note=note)
    why = f"from number {sharp + 1} on rounding alone moves the original by more than {tolerance.BLUNT:.0%}"
    return replace(check, result=Result.NOT_COMPARED, total=total, note=why)


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
