"""AM502: weights come to the CPU, after the file is written, into the model itself."""

from __future__ import annotations

from tests.migrate.rules.scripts import becomes, codes, stays, training


def test_reads_to_the_cpu_before_prepare():
    becomes(
        training(ready='model.load_state_dict(torch.load("init.pt", map_location=device))'),
        'model.load_state_dict(torch.load("init.pt", map_location="cpu"))',
    )


def test_names_the_cpu_where_nothing_was_named():
    becomes(
        training(ready='model.load_state_dict(torch.load("init.pt"))'),
        'model.load_state_dict(torch.load("init.pt", map_location="cpu"))',
    )


def test_fills_the_model_itself_after_prepare():
    becomes(training(after="model.load_state_dict(best)"), "accelerator.unwrap_model(model).load_state_dict(best)")


def test_waits_for_a_file_of_this_run():
    becomes(
        training(after='torch.save(model.state_dict(), "m.pt")\nmodel.load_state_dict(torch.load("m.pt"))'),
        """
        accelerator.wait_for_everyone()
        accelerator.unwrap_model(model).load_state_dict(torch.load("m.pt", map_location="cpu"))
        """,
    )


def test_follows_a_checkpoint_that_is_read_by_its_parts():
    becomes(
        training(
            ready='c = torch.load("c.pt", map_location=device)\nmodel.load_state_dict(c["model"])\nepoch = c["epoch"]'
        ),
        'c = torch.load("c.pt", map_location="cpu")',
    )


def test_keeps_the_place_of_what_is_used_as_it_is():
    stays(
        training(ready='mask = torch.load("mask.pt", map_location=device)\nmask = mask * 2'),
        'mask = torch.load("mask.pt", map_location=device)',
    )


def test_keeps_a_load_to_the_cpu():
    assert "AM502" not in codes(training(ready='model.load_state_dict(torch.load("i.pt", map_location="cpu"))'))


def test_keeps_a_load_into_another_model():
    stays(training(ready="other = nn.Linear(2, 2)", after="other.load_state_dict(best)"), "other.load_state_dict(best)")


def test_does_not_wait_where_nothing_is_saved():
    source = training(after='model.load_state_dict(torch.load("m.pt"))')
    becomes(source, 'accelerator.unwrap_model(model).load_state_dict(torch.load("m.pt", map_location="cpu"))')
    assert "wait_for_everyone" not in _after(source)


def _after(source: str) -> str:
    from accel_migrate.settings import DEFAULTS

    from tests.migrate.rules.verbs import _migrated

    return _migrated(source, DEFAULTS).after.decode()
