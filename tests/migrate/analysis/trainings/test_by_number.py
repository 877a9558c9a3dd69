"""What a training pairs with its batches by their number."""

from __future__ import annotations

import pytest

from tests.migrate.rules.scripts import training
from tests.migrate.rules.verbs import migrated, noted, notes, unchanged

_BY_NUMBER = "is paired with a batch by the number of it"


def paired(chosen: str, ready: str = "", shuffle: str = "False", inside: str = "") -> str:
    """A training in the order of its data whose targets are chosen by hand, after the lines of `inside`."""
    source = training(ready=f"targets = torch.randint(0, 2, (40,))\n{ready}", loss=f"criterion(model(x), {chosen})")
    source = source.replace("shuffle=True", f"shuffle={shuffle}")
    lines = "".join(f"        {line}\n" for line in inside.splitlines())
    return source.replace("        loss =", f"{lines}        loss =")


@pytest.mark.parametrize(
    ("chosen", "inside"),
    [
        ("targets[i]", ""),
        ("targets[i * 4 : (i + 1) * 4]", ""),
        ("targets[i % len(targets)]", ""),
        ("targets.narrow(0, i * 4, 4)", ""),
        ("own", "own = targets[i]"),
        ("own.to(device)", "low = i * 4\nown = targets.to(device)[low : low + len(x)]"),
    ],
)
def test_a_target_that_is_chosen_by_the_number_of_its_batch_is_of_another_on_several_processes(chosen, inside):
    assert _BY_NUMBER in unchanged(paired(chosen, inside=inside))


def test_a_function_that_is_handed_the_number_is_looked_into():
    source = paired("chosen(i)").replace("device = ", "def chosen(place):\n    return targets[place]\n\ndevice = ", 1)
    assert "`targets[place]` is paired" in unchanged(source)


def test_what_each_round_goes_on_by_numbers_the_samples():
    source = paired("targets[seen : seen + len(x)]").replace("    total = 0.0\n", "    total = 0.0\n    seen = 0\n")
    assert _BY_NUMBER in unchanged(source.replace("optimizer.step()\n", "optimizer.step()\n        seen += len(x)\n"))


ZIPPED = [
    ("(x, y), own in zip(loader, targets)", "own"),
    ("(x, y), own in zip(loader, targets.split(4))", "own.to(device)"),
    ("i, ((x, y), own) in enumerate(zip(loader, targets))", "own"),
    ("i, (x, y) in zip(range(10), loader)", "targets[i]"),
    ("i, (x, y) in zip(itertools.count(), loader)", "targets[i]"),
]


@pytest.mark.parametrize(("head", "chosen"), ZIPPED)
def test_what_is_zipped_with_a_loader_goes_by_the_number_as_well(head, chosen):
    def source(chosen: str, shuffle: str = "False") -> str:
        return paired(chosen, shuffle=shuffle).replace("i, (x, y) in enumerate(loader)", head)

    assert _BY_NUMBER in unchanged(source(chosen))
    migrated(source("y"))
    migrated(source(chosen, shuffle="True"))


@pytest.mark.parametrize("data", ["targets", "targets.split(4)"])
def test_what_is_taken_in_turn_beside_a_loader_goes_by_the_number_as_well(data: str):
    def source(chosen: str, data: str, shuffle: str = "False") -> str:
        written = paired(chosen, shuffle=shuffle)
        return written.replace("    total = 0.0\n", f"    total = 0.0\n    turn = iter({data})\n")

    assert _BY_NUMBER in unchanged(source("next(turn)", data))
    assert _BY_NUMBER in unchanged(source("next(turn, None)", data))
    migrated(source("next(turn)", data, shuffle="True"))
    assert not any(_BY_NUMBER in note for note in notes(source("next(turn)[1]", "DataLoader(data, batch_size=4)")))


@pytest.mark.parametrize("other", ["range(40)", "others", "iter(others)", "itertools.cycle(others)", "forever(others)"])
def test_what_another_loader_yields_is_left_to_who_judges_that(other):
    ready = "others = DataLoader(data, batch_size=4)\ndef forever(loader):\n    while True:\n        yield from loader"
    source = paired("y * len(own)", ready=ready).replace(
        "i, (x, y) in enumerate(loader)", f"(x, y), own in zip(loader, {other})"
    )
    assert not any(_BY_NUMBER in note for note in notes(source))


def test_a_loader_that_shuffles_has_no_order_to_pair_by():
    source = paired("targets[i]", shuffle="True")
    assert "what goes by the number of a batch" in noted(source, "AM801")


@pytest.mark.parametrize("chosen", ["y * scales[i % 2]", "x[i]", "torch.stack(y)[i]", "y"])
def test_what_goes_round_or_is_of_the_batch_itself_pairs_no_samples(chosen):
    migrated(paired(chosen, ready="scales = [1, 2]"))


def test_what_is_chosen_for_a_rate_is_in_no_loss():
    inside = "optimizer.param_groups[0]['lr'] = rates[i]"
    migrated(paired("y", ready="rates = [0.1] * 40", inside=inside))


def test_what_was_filled_before_the_loader_is_sharded_is_of_all_samples():
    assert _BY_NUMBER in unchanged(
        paired("earlier[i]", ready="earlier = []\nfor x, y in loader:\n    earlier.append(y)")
    )


def test_what_is_stored_at_the_same_number_is_its_own():
    source = paired("y) + F.mse_loss(model(x), earlier[i]", ready="earlier = {k: 0.0 for k in range(10)}")
    migrated(source.replace("optimizer.step()\n", "optimizer.step()\n        earlier[i] = model(x).detach()\n"))
