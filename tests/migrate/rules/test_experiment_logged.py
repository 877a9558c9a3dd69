"""AM603: TensorBoard and Weights & Biases hear one process."""

from __future__ import annotations

from tests.migrate.rules.scripts import becomes, codes, training
from tests.migrate.rules.verbs import noted


def test_disables_the_runs_of_other_processes():
    becomes(
        training(ready='model.requires_grad_(True)\nwandb.init(project="p")'),
        'wandb.init(project="p", mode=None if accelerator.is_main_process else "disabled")',
    )


def test_notes_a_run_whose_mode_is_the_authors():
    assert "mode=" in noted(training(ready='wandb.init(project="p", mode="offline")'), "AM603")


def test_guards_events_under_one_test():
    becomes(
        training(ready="writer = SummaryWriter()", inside='writer.add_scalar("a", 1, i)\nwriter.add_scalar("b", 2, i)'),
        'if accelerator.is_main_process:\nwriter.add_scalar("a", 1, i)\nwriter.add_scalar("b", 2, i)',
    )


def test_notes_events_for_which_the_model_runs():
    assert "line" in noted(training(ready="writer = SummaryWriter()\nwriter.add_graph(model, x)"), "AM603")


def test_keeps_a_writer_of_another_kind():
    assert "AM603" not in codes(training(ready="writer = Table()", inside='writer.add_scalar("a", 1, i)'))
