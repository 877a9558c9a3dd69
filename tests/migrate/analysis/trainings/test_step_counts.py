"""What ends a training: a per-batch schedule is prepared where the data do, and left alone where a count does."""

from __future__ import annotations

import pytest

from tests.migrate.analysis.reading import BUILT, STEP, prepared, refusal

SCHEDULER = "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n"
STEPS = f"        x, y = x.to(device), y.to(device){STEP}        scheduler.step()\n"


def looped(around: str, leaving: str = "") -> str:
    inner = "".join(f"        {line}\n" for line in leaving.splitlines())
    return f"{BUILT}{SCHEDULER}done = 0\n{around}:\n    for i, (x, y) in enumerate(loader):\n{STEPS}        done += 1\n{inner}"


@pytest.mark.parametrize(
    ("around", "leaving"),
    [
        ("while done < total", ""),
        ("while done < total and not over", ""),
        ("while True", "if done >= total:\n    break"),
        ("while True", "if done >= total or over:\n    break"),
        ("for epoch in range(9)", "if i == limit:\n    break"),
        ("while True", "if done % 100 == 0:\n    if done >= total:\n        break"),
    ],
)
def test_a_count_of_steps_keeps_the_schedule_as_it_is(around: str, leaving: str) -> None:
    assert "scheduler" not in prepared(looped(around, leaving))


def test_a_function_that_returns_at_a_count_keeps_the_schedule_as_it_is() -> None:
    imports, built = BUILT.split("\n\n")
    body = built + SCHEDULER + "done = 0\nwhile True:\n    for x, y in loader:\n" + STEPS
    body += "        done += 1\n        if done >= total:\n            return\n"
    inner = "".join(f"    {line}\n" for line in body.splitlines() if line)
    assert "scheduler" not in prepared(f"{imports}\n\ndef main():\n{inner}\nmain()\n")


def test_rounds_that_are_counted_outside_of_any_loader_keep_the_schedule_as_it_is() -> None:
    rounds = (
        f"{BUILT}{SCHEDULER}batches = iter(loader)\nfor done in range(total):\n        x, y = next(batches)\n{STEPS}"
    )
    assert "scheduler" not in prepared(rounds)


@pytest.mark.parametrize(
    ("around", "leaving"),
    [
        ("for epoch in range(9)", ""),
        ("while epoch < 9", ""),
        ("for epoch in range(9)", "if total > 0 and done >= total:\n    break"),
        ("for epoch in range(9)", "if total:\n    if done >= total:\n        break"),
        ("for epoch in range(9)", "if over:\n    break"),
    ],
)
def test_data_that_end_the_loop_have_the_schedule_prepared(around: str, leaving: str) -> None:
    assert "scheduler" in prepared(looped(around, leaving))


def rounds(before: str = "", after: str = "", then: str = "") -> str:
    loop = (
        f"for epoch in range(epochs):\n    for x, y in loader:\n        x, y = x.to(device), y.to(device){STEP}{then}"
    )
    built = BUILT.replace("model =", f"{before}\nmodel =")
    return f"{built}{after}\n{loop}"


def test_a_schedule_by_batches_over_epochs_that_a_length_says() -> None:
    source = rounds(after=f"{SCHEDULER}epochs = 5000 // len(loader)", then="        scheduler.step()\n")
    assert "worked out of the length of the loader" in refusal(source)
    assert "scheduler" in prepared(source.replace("5000 // len(loader)", "9"))
