"""AM703: DistributedSamplers."""

from __future__ import annotations

import pytest
from accel_migrate.settings import Settings

from tests.migrate.rules.handwritten import script
from tests.migrate.rules.scripts import codes
from tests.migrate.rules.verbs import migrated, noted, notes, unchanged


@pytest.mark.parametrize(
    ("sampler", "loader", "expected"),
    [
        ("", "", "DataLoader(data, batch_size=4, shuffle=True)"),
        (", shuffle=False", "", "DataLoader(data, batch_size=4)"),
        (", shuffle=mixed", "", "DataLoader(data, batch_size=4, shuffle=mixed)"),
        ("", ", shuffle=(sampler is None)", "DataLoader(data, batch_size=4, shuffle=True)"),
        (", shuffle=False", ", shuffle=(sampler is None)", "DataLoader(data, batch_size=4)"),
        (", shuffle=False", ", shuffle=False", "DataLoader(data, batch_size=4, shuffle=False)"),
        ("", ", drop_last=True", "DataLoader(data, batch_size=4, shuffle=True, drop_last=True)"),
    ],
)
def test_shuffle_follows_the_sampler(sampler, loader, expected):
    text = migrated(script(sampler=sampler, loader=loader))
    assert expected in text
    assert "ampler" not in text


@pytest.mark.parametrize(("comment", "stays"), [("DistributedSampler shuffles anew", False), ("of forty rounds", True)])
def test_set_epoch_goes_with_the_comment_that_speaks_of_it(comment: str, stays: bool):
    text = migrated(script(body=f"# {comment}\n            sampler.set_epoch(epoch)\n"))
    assert (comment in text) is stays


def test_set_epoch_goes():
    assert "set_epoch" not in migrated(script(body="sampler.set_epoch(epoch + 1)"))
    assert "set_epoch" not in migrated(script(body="loader.sampler.set_epoch(epoch + 1)"))
    assert "set_epoch" not in migrated(script(body="if sampler is not None:\n                sampler.set_epoch(epoch)"))


def test_a_sampler_only_when_distributed_goes():
    alike = "DistributedSampler(data, shuffle=False) if ddp else None"
    assert "ampler" not in migrated(script().replace("DistributedSampler(data)", alike))


def test_a_sampler_that_shuffles_on_many_processes_only_leaves_the_loop():
    source = script().replace("DistributedSampler(data)", "DistributedSampler(data) if ddp else None")
    assert "on one process not at all" in unchanged(source)


def test_the_other_sampler_stays():
    source = script().replace("DistributedSampler(data)", "DistributedSampler(data) if ddp else Ordered(data)")
    text = migrated(source)
    assert "sampler = Ordered(data)" in text
    assert "sampler=sampler" in text


def test_a_sampler_that_is_used_for_more_leaves_the_loop():
    assert "does more than shard" in unchanged(script(body="log(len(sampler))"))


def test_a_sampler_that_is_handed_on_leaves_the_loop():
    assert "does more than shard" in unchanged(script(body="resume(sampler)"))


def test_a_choice_of_samplers_keeps_the_one_for_a_single_process():
    choice = (
        "if ddp:\n            sampler = DistributedSampler(data)\n        else:\n            sampler = Ordered(data)"
    )
    text = migrated(script().replace("sampler = DistributedSampler(data)", choice))
    assert "    sampler = Ordered(data)\n    loader = DataLoader(data, batch_size=4, sampler=sampler)" in text
    assert "if ddp" not in text


@pytest.mark.parametrize(
    ("shuffle", "kind"),
    [("", "RandomSampler"), (", shuffle=True", "RandomSampler"), (", shuffle=False", "SequentialSampler")],
)
def test_a_sampler_of_batches_gets_one_that_draws_alike(shuffle, kind):
    batches = "batches = torch.utils.data.BatchSampler(sampler, 4, drop_last=True)"
    source = script(sampler=shuffle, body="sampler.set_epoch(epoch)").replace(
        "loader = DataLoader(data, batch_size=4, sampler=sampler)",
        f"{batches}; loader = DataLoader(data, batch_sampler=batches)",
    )
    assert "batch_sampler=batches" in source, "the script is not the one that is meant"
    text = migrated(source)
    assert f"sampler = torch.utils.data.{kind}(data)" in text
    assert "DistributedSampler" not in text and "set_epoch" not in text


def out_of_sight(body: str = "loader.sampler.set_epoch(epoch)") -> str:
    source = script(body=body).replace("sampler = DistributedSampler(data)", "sampler = parts_of(data)")
    return source.replace("import torch\n", "import torch\n    from parts import parts_of\n", 1)


def test_an_epoch_is_still_told_to_a_sampler_that_stays():
    text = migrated(out_of_sight())
    assert "loader.sampler.set_epoch(epoch)" in text
    assert "sampler=sampler" in text


def test_an_epoch_told_through_the_batches_goes_with_its_sampler():
    assert "set_epoch" not in migrated(script(body="loader.batch_sampler.sampler.set_epoch(epoch)"))


def test_accelerate_would_share_out_a_sampler_that_stays_once_more():
    assert "once more" in unchanged(out_of_sight(), Settings(target="accelerate"))


CHOSEN = "sampler = DistributedSampler(data) if many else None"


def chosen(loader: str) -> str:
    return script(start="many = torch.cuda.device_count() > 1", loader=loader).replace(
        "sampler = DistributedSampler(data)", CHOSEN
    )


@pytest.mark.parametrize("loader", ["", ", shuffle=False"])
def test_a_loader_that_is_in_order_on_one_process_is_not_shuffled_there(loader: str):
    assert "on one process not at all" in unchanged(chosen(loader))


def test_a_loader_that_is_shuffled_either_way_is_shuffled():
    assert "shuffle=True" in migrated(chosen(", shuffle=sampler is None"))


def test_leaves_a_sampler_without_a_name_of_its_own():
    kept = script(loader=", **options").replace("sampler = Dist", "options = {}\n        options['sampler'] = Dist")
    assert "a DistributedSampler is made without a name of its own" in unchanged(kept.replace("sampler=sampler, ", ""))


def test_the_sampler_of_one_process_stays_imported():
    chosen = "if many:\n            sampler = DistributedSampler(data)\n        else:\n            sampler = RandomSampler(data)"
    source = script().replace("sampler = DistributedSampler(data)", chosen)
    source = source.replace(
        "distributed import DistributedSampler", "distributed import DistributedSampler, RandomSampler"
    )
    assert "import RandomSampler\n" in migrated(source)


def scheduled(made: str, above: str = "pass", samples: bool = True) -> str:
    """A schedule that is stepped at every batch, made below `above`."""
    text = script().replace("lr=0.1)\n", f"lr=0.1)\n        {above}\n        rates = torch.optim.lr_scheduler.{made}\n")
    text = text.replace("optimizer.step()\n", "optimizer.step()\n                rates.step()\n")
    return (
        text if samples else text.replace(", sampler=sampler", "").replace("sampler = DistributedSampler(data)", "pass")
    )


@pytest.mark.parametrize(
    ("made", "above"),
    [
        ("OneCycleLR(optimizer, 0.1, 2 * len(loader))", "pass"),
        ("OneCycleLR(optimizer, 0.1, total)", "total = 2 * len(loader)"),
        ("LambdaLR(optimizer, lambda step: 1 - step / total)", "total = 2 * len(loader)"),
    ],
)
def test_a_schedule_made_for_the_length_of_a_loader_that_was_sharded_is_prepared(made: str, above: str) -> None:
    """The length is that of all batches once no sampler shards them, and a prepared schedule counts all of them."""
    assert "optimizer, rates, loader = accelerator.prepare(" in migrated(scheduled(made, above)).replace("\n", "")
    assert "AM801" not in codes(scheduled(made, above))


@pytest.mark.parametrize(
    ("made", "above"),
    [
        ("StepLR(optimizer, 1000)", "pass"),
        ("CosineAnnealingLR(optimizer, total)", "total = 2 * len(data) // 4 // dist.get_world_size()"),
    ],
)
def test_a_schedule_made_for_the_steps_of_a_process_goes_on_by_them(made: str, above: str) -> None:
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in migrated(
        scheduled(made, above)
    )
    assert "rates, " in migrated(scheduled(made, above, samples=False))


def test_a_length_that_was_that_of_a_shard_is_named() -> None:
    lr = 'optimizer.param_groups[0]["lr"] = 1 - epoch / total'
    source = script(body=lr).replace("        model = DDP", "        total = 2 * len(loader)\n        model = DDP")
    assert "was that of one process's shard, and is that of all batches now" in noted(source, "AM801")
    assert "AM801" not in codes(script(body=lr.replace("total", "(2 * len(loader))")))


def test_a_schedule_that_was_saved_by_several_processes_counts_otherwise() -> None:
    resumed = "rates.load_state_dict(torch.load('rates.pt'))\n        for epoch in range(2)"
    source = scheduled("OneCycleLR(optimizer, 0.1, 2 * len(loader))").replace("for epoch in range(2)", resumed)
    assert "counts the batches of one of them" in noted(source, "AM502")
    steps = scheduled("StepLR(optimizer, 1000)").replace("for epoch in range(2)", resumed)
    assert not any("counts the batches" in each for each in notes(steps))


def test_a_sampler_that_repeated_one_order_is_named() -> None:
    def told(source: str) -> bool:
        return any("it repeated one order in every epoch" in each for each in notes(source))

    assert told(script())
    beside = "aside = DistributedSampler(rest)\n        sampler = DistributedSampler"
    assert told(script(body="aside.set_epoch(0)").replace("sampler = DistributedSampler", beside))
    assert not told(script(body="maybe.set_epoch(0)"))
    assert not told(script(sampler=", shuffle=False"))
    assert not told(script(body="sampler.set_epoch(epoch)"))
    assert not told(script(body="loader.sampler.set_epoch(epoch)"))
    assert not told(script().replace("for epoch in range(2)", "if True"))
    inline = script().replace("sampler=sampler", "sampler=DistributedSampler(data)")
    inline = inline.replace("        sampler = DistributedSampler(data)\n", "")
    assert told(inline)
    assert not told(inline.replace("    pass\n\n\n    main", "    loader.sampler.set_epoch(epoch)\n\n\n    main"))


def test_a_sampler_in_whose_place_a_plain_one_stands_is_told_no_epoch():
    source = script(sampler="").replace(
        "sampler = DistributedSampler(data)",
        """if many:
            sampler = DistributedSampler(data)
        else:
            sampler = torch.utils.data.RandomSampler(data)""",
    )
    source = source.replace("for x, y in loader:", "loader.sampler.set_epoch(epoch)\n            for x, y in loader:")
    assert "set_epoch" not in migrated(source)
