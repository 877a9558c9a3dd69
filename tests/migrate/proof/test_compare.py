"""What agrees and what does not, told from what was recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from accel_migrate.proof.check import Check, Quantity, Result
from accel_migrate.proof.compare import figures_on_many, on_many, on_one
from accel_migrate.proof.figures import unsteady
from accel_migrate.proof.record import Event, Trace

from tests.migrate.proof.traces import BATCHES, halves, trace


def found(checks: list[Check], quantity: Quantity) -> Check:
    (check,) = (check for check in checks if check.quantity is quantity)
    return check


def ranks(first: Any = (1.1, 0.6, 0.2), second: Any = (0.9, 0.4, 0.3), **facts: Any) -> list[Trace]:
    """Two processes that share out the batches; the means of these losses are those of `trace()`."""
    left, right = halves(facts.pop("batches", BATCHES))
    return [trace(first, left, rank=0, **facts), trace(second, right, rank=1, **facts)]


def test_a_run_that_repeats_the_original_is_equal_in_all() -> None:
    checks = on_one(trace(printed=["loss 0.25"]), trace(printed=["loss 0.25"]), trace(printed=["loss 0.25"]))
    assert {check.result for check in checks} == {Result.EQUAL}
    assert found(checks, Quantity.LOSSES).agreed == 3


@pytest.mark.parametrize(
    ("changed", "quantity", "number"),
    [
        ({"losses": (1.0, 0.5, 0.25000000000000006)}, Quantity.LOSSES, 3),
        ({"losses": (1.0, 0.5)}, Quantity.LOSSES, 3),
        ({"gradients": (3.0, 2.5, 1.0)}, Quantity.GRADIENTS, 2),
        ({"rates": (0.1, 0.1, 0.05)}, Quantity.RATES, 3),
        ({"batches": ((0, 1, 2, 3), (5, 4, 6, 7), (8, 9, 10, 11))}, Quantity.SAMPLES, 2),
        ({"printed": ["right 7 of 10"]}, Quantity.PRINTED, 1),
        ({"weights": "other"}, Quantity.WEIGHTS, 3),
    ],
    ids=lambda value: str(value),
)
def test_the_last_bit_of_each_quantity_counts_on_one_process(changed: Any, quantity: Quantity, number: int) -> None:
    original = trace(printed=["right 8 of 10"])
    check = found(on_one(original, original, trace(**{"printed": ["right 8 of 10"], **changed})), quantity)
    assert check.result is Result.DIFFERS
    assert check.difference is not None and check.difference.number == number


def test_a_script_that_does_not_repeat_itself_is_compared_within_its_spread() -> None:
    again = trace((1.0, 0.51, 0.25), weights="again")
    near, far = (on_one(trace(), again, trace((1.0, value, 0.25))) for value in (0.52, 0.54))
    assert found(near, Quantity.LOSSES).result is Result.WITHIN
    assert "does not repeat itself" in found(near, Quantity.LOSSES).note
    assert found(far, Quantity.LOSSES).result is Result.DIFFERS


def test_what_cannot_be_a_number_is_like_itself() -> None:
    original = trace((float("nan"), 1.0, 1.0))
    assert found(on_one(original, original, original), Quantity.LOSSES).result is Result.EQUAL


def test_processes_that_share_out_each_batch_are_within_a_tolerance() -> None:
    checks = on_many(trace(), trace(), ranks())
    assert all(check.holds and check.result is not Result.NOT_COMPARED for check in checks)
    assert found(checks, Quantity.LOSSES).largest < 1e-9


@pytest.mark.parametrize(
    ("moved", "result"),
    [(None, Result.DIFFERS), (1e-9, Result.DIFFERS), (5e-6, Result.WITHIN), (5e-3, Result.NOT_COMPARED)],
)
def test_what_is_allowed_comes_from_what_rounding_does_to_the_original(moved: float | None, result: Result) -> None:
    """A loss that is off by 4e-5 is right only where rounding moves the original itself by something of the kind."""
    off = ranks((1.1, 0.60004, 0.2), (0.9, 0.4, 0.3))
    nudged = None if moved is None else trace((1.0, 0.5 + moved, 0.25))
    check = found(on_many(trace(), trace(), off, lambda: nudged), Quantity.LOSSES)
    assert check.result is result, check


def test_the_original_is_not_run_again_where_rounding_explains_all() -> None:
    def never() -> Trace:
        raise AssertionError("not needed")

    assert all(check.holds for check in on_many(trace(), trace(), ranks(), never))


def test_every_process_that_sees_the_whole_batch_is_caught() -> None:
    whole = [trace(rank=0), trace(rank=1)]
    assert found(on_many(trace(), trace(), whole), Quantity.SAMPLES).result is Result.DIFFERS


def looking(ahead: Trace, *samples: int) -> Trace:
    """A run that looked at a batch of another loader before it trained."""
    facts = {"indices": list(samples), "rows": [f"other {index}" for index in samples], "number": 0}
    return replace(ahead, events=(Event("batch", "train.py", 5, {**ahead.events[0].facts, **facts}), *ahead.events))


def test_a_batch_that_every_process_looks_at_whole_is_left_aside_and_one_that_is_shared_is_not() -> None:
    original = looking(trace(), 20, 21, 22, 23)
    alike = [looking(rank, 20, 21, 22, 23) for rank in ranks()]
    assert found(on_many(original, original, alike), Quantity.SAMPLES).result is Result.EQUAL
    other = [looking(rank, 20, 21) for rank in ranks()]
    assert found(on_many(original, original, other), Quantity.SAMPLES).result is Result.DIFFERS
    single = trace(losses=(1.0,))
    alone = [trace(losses=(1.0,), rank=rank) for rank in (0, 1)]
    assert found(on_many(single, single, alone), Quantity.SAMPLES).result is Result.DIFFERS


def test_filling_of_a_partial_batch_is_left_aside_and_ends_the_comparison() -> None:
    batches = ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9))
    original = trace(batches=batches)
    filled = ranks((1.1, 0.6, 0.9), (0.9, 0.4, 0.9), batches=((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 0, 1)))
    checks = on_many(original, original, filled)
    assert found(checks, Quantity.SAMPLES).result is Result.EQUAL
    losses = found(checks, Quantity.LOSSES)
    assert (losses.result, losses.agreed) == (Result.NOT_COMPARED, 2)
    assert "batch 3 is a partial one of 2 samples, filled up to 4" in losses.note


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"random": True}, "dropout, noise"),
        ({"forms": ["summed"]}, "AM802"),
        ({"forms": ["weighted"]}, "weighted mean"),
        ({"forms": ["ignored targets"]}, "not ignored"),
    ],
    ids=["random", "summed", "weighted", "ignored"],
)
def test_a_difference_that_the_original_explains_is_dropped_with_the_reason(facts: Any, reason: str) -> None:
    other = ranks((2.0, 0.6, 0.2))
    check = found(on_many(trace(**facts), trace(**facts), other), Quantity.LOSSES)
    assert check.result is Result.NOT_COMPARED and reason in check.note
    plain = found(on_many(trace(), trace(), other), Quantity.LOSSES)
    assert plain.result is Result.DIFFERS, "nothing explains it"


def test_batch_normalisation_is_a_reason_and_weights_must_still_be_alike() -> None:
    original = trace()
    normal = Trace(0, (Event("fact", "train.py", 9, {"name": "batch norm"}), *original.events))
    apart = ranks((2.0, 0.6, 0.2))
    apart[1] = trace((0.9, 0.4, 0.3), halves(BATCHES)[1], rank=1, weights="other")
    checks = on_many(normal, normal, apart)
    assert "AM804" in found(checks, Quantity.LOSSES).note
    assert found(checks, Quantity.WEIGHTS).result is Result.DIFFERS


def test_rates_follow_the_schedule_of_the_original() -> None:
    checks = on_many(trace(rates=(0.1, 0.09, 0.08)), trace(rates=(0.1, 0.09, 0.08)), ranks(rates=(0.1, 0.08, 0.06)))
    rates = found(checks, Quantity.RATES)
    assert rates.result is Result.DIFFERS
    assert rates.difference is not None and (rates.difference.expected, rates.difference.found) == ("0.09", "0.08")


@pytest.mark.parametrize(
    ("printed", "result"),
    [
        ("epoch 1 train loss 0.7 accuracy 0.8123 on 33 in 9.1 s", Result.WITHIN),
        ("epoch 1 train loss 0.5 accuracy 0.8124 on 33 in 2.0 s", Result.WITHIN),
        ("epoch 1 train loss 0.5 accuracy 0.8143 on 33 in 2.0 s", Result.DIFFERS),
        ("epoch 1 train loss 0.5 accuracy 0.8123 on 34 in 2.0 s", Result.DIFFERS),
    ],
)
def test_figures_of_evaluations_agree_as_far_as_they_are_printed(printed: str, result: Result) -> None:
    line = "epoch 1 train loss 0.5 accuracy 0.8123 on 33 in {} s"
    original, again = (trace(printed=[line.format(seconds)]) for seconds in ("2.0", "2.1"))
    assert figures_on_many(original, again, trace(printed=[printed]), 2).result is result


def test_what_two_runs_print_otherwise_is_not_compared_with_a_third() -> None:
    """A run with its weights held still is made once: a throughput looks repeated in it."""
    line = "epoch 1, throughput {}, accuracy {}"
    original, again = (trace(printed=[line.format(rate, 0.512)]) for rate in (210.7, 194.8))
    varying = unsteady(original.of("printed"), again.of("printed"))
    for printed, result in ((line.format(99.1, 0.512), Result.WITHIN), (line.format(99.1, 0.437), Result.DIFFERS)):
        assert figures_on_many(original, original, trace(printed=[printed]), 2, varying).result is result
    assert figures_on_many(original, original, trace(printed=[line.format(99.1, 0.512)]), 2).result is Result.DIFFERS


def test_a_figure_that_is_not_printed_any_more_is_missed() -> None:
    original = trace(printed=["accuracy 0.8"])
    assert figures_on_many(original, original, trace(), 2).result is Result.DIFFERS


def test_a_script_that_trains_otherwise_may_end_earlier() -> None:
    stopped = [rank.until(2) for rank in ranks((2.0, 0.6, 0.2))]
    checks = on_many(trace(random=True), trace(random=True), stopped)
    assert found(checks, Quantity.LOSSES).result is Result.NOT_COMPARED
    assert all(check.holds for check in checks)
    plain = on_many(trace(), trace(), [rank.until(2) for rank in ranks()])
    assert found(plain, Quantity.LOSSES).result is Result.DIFFERS, "without a reason it must not"


@pytest.mark.parametrize(
    "line",
    [
        "{:02}:00:07 loss 0.25",
        "2026-01-{:02} loss 0.25",
        "loss 0.25 in {}.5 s",
        "elapsed: {}.25, loss 0.25",
        "17000000{:02} loss 0.25",
    ],
)
def test_times_are_no_figures(line: str) -> None:
    original = trace(printed=[line.format(11)])
    checks = on_one(original, original, trace(printed=[line.format(12)]))
    assert found(checks, Quantity.PRINTED).result is Result.EQUAL


def test_a_figure_beside_a_time_is_still_compared() -> None:
    original = trace(printed=["11:00:07 loss 0.25"])
    checks = on_one(original, original, trace(printed=["12:00:07 loss 0.26"]))
    assert found(checks, Quantity.PRINTED).result is Result.DIFFERS


@pytest.mark.parametrize(
    ("printed", "result"),
    [
        (["train loss 0.350", "train loss 0.290"], Result.DIFFERS),  # a sum of a share, over all of the data
        (["train loss 0.640", "train loss 0.590"], Result.WITHIN),  # a mean of the share
        (["train loss 0.350", "train loss 0.700"], Result.WITHIN),
    ],
)
def test_a_figure_that_is_n_times_too_small_is_caught(printed: list[str], result: Result) -> None:
    original = trace(printed=["train loss 0.700", "train loss 0.600", "accuracy 0.8"])
    assert figures_on_many(original, original, trace(printed=[*printed, "accuracy 0.8"]), 2).result is result
