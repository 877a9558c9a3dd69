"""AM602: one bar on each machine, which counts what all processes do."""

from __future__ import annotations

from accel_migrate.settings import Settings

from tests.migrate.rules.scripts import becomes, codes, stays, training
from tests.migrate.rules.verbs import noted, notes

ONCE = Settings(prints="once")

SHOWN = "disable=not accelerator.is_local_main_process"


def test_shows_a_bar_once():
    becomes(
        training(after="for x, y in tqdm(test_loader):\n    pass"), f"for x, y in tqdm(test_loader, {SHOWN}):", ONCE
    )


def test_keeps_what_the_author_says_about_showing():
    stays(training(after="for x, y in tqdm(test_loader, disable=quiet):\n    pass"), "tqdm(test_loader, disable=quiet)")


def test_keeps_another_function_of_that_name():
    source = training(functions="def bar(x):\n    return x\n", after="for e in bar(range(3)):\n    pass")
    assert "AM602" not in codes(source)


def test_counts_the_samples_of_all_processes():
    becomes(
        training(ready="bar = tqdm(total=len(data))", inside="bar.update(x.size(0))"),
        "bar.update(x.size(0) * accelerator.num_processes)",
    )


def test_counts_the_batches_that_were_counted_before_prepare():
    becomes(
        training(
            ready="steps = 2 * len(loader)\nmodel.requires_grad_(True)\nbar = tqdm(range(steps))",
            inside="bar.update(1)",
        ),
        "bar.update(accelerator.num_processes)",
    )


def test_notes_a_total_that_it_does_not_understand():
    assert "MAX" in noted(training(ready="bar = tqdm(total=MAX)", inside="bar.update(1)"), "AM602")


def test_says_nothing_of_a_total_that_the_steps_are_counted_to():
    source = training(
        ready="step = 0\nbar = tqdm(total=MAX)", inside="step += 1\nbar.update(1)\nif step >= MAX:\n    break"
    )
    assert not [message for message in notes(source) if "the bar's total" in message]


def test_writes_beside_a_bar_once():
    becomes(training(after='tqdm.write("done")'), 'if accelerator.is_local_main_process:\ntqdm.write("done")', ONCE)


def test_says_nothing_of_another_bar_of_the_same_name():
    source = training(
        inside="bar.update(1)", after="bar = tqdm(total=rounds)\nfor x, y in test_loader:\n    bar.update(1)"
    )
    source = source.replace("    for i, (x, y)", "    bar = tqdm(total=len(loader))\n    for i, (x, y)")
    assert not [note for note in notes(source) if "the bar's total" in note]


def test_a_bar_that_does_not_move_by_one_has_no_total_in_steps():
    source = training(functions="bar = tqdm(total=10)\n", inside="bar.update({})")
    assert "reached in steps of one process" in noted(source.format(""), "AM602")
    assert "AM602" not in codes(source.format("2"))
