"""Trainings further down in one block, and what each of them prepares."""

from __future__ import annotations

import pytest

from tests.migrate.analysis.reading import BUILT, TRAINED, dropped, refusal, training

FUNCTION = """
def train(model, optimizer, loader):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

"""
FIRST = BUILT + FUNCTION + "train(model, optimizer, loader)\n"
SECOND = """
wider = nn.Linear(4, 2).to(device)
other = torch.optim.SGD(wider.parameters(), lr=0.1)
train(wider, other, loader)
"""


def later(*texts: str) -> list[tuple[str, int]]:
    """What is prepared later, each with the line behind which that is."""
    return [(one.built.text, one.after.lineno) for one in training(*texts).place.later]


def line_of(text: str, start: str) -> int:
    lines = text.lstrip("\n").splitlines()
    return max(number for number, line in enumerate(lines, 1) if line.startswith(start))


def test_a_second_model_is_prepared_where_its_training_begins() -> None:
    text = FIRST + SECOND
    at = line_of(text, "other =")
    assert later(text) == [("wider", at), ("other", at)]
    assert {built.text for built in training(text).place.waiting} == {"wider", "other"}


def test_a_name_that_is_given_a_second_model_is_prepared_twice() -> None:
    text = FIRST + SECOND.replace("wider", "model").replace("other", "optimizer")
    at = line_of(text, "optimizer =")
    assert later(text) == [("model", at), ("optimizer", at)]
    assert not training(text).place.waiting


def test_loops_one_after_another_are_as_functions() -> None:
    again = "model = nn.Linear(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    assert [name for name, _ in later(BUILT + TRAINED + again + TRAINED)] == ["model", "optimizer"]


def test_an_optimizer_over_a_model_that_is_prepared_is_prepared_alone() -> None:
    text = FIRST + "optimizer = torch.optim.Adam(model.parameters())\ntrain(model, optimizer, loader)\n"
    assert [name for name, _ in later(text)] == ["optimizer"]


def test_a_loader_that_a_later_training_builds_is_prepared_with_it() -> None:
    text = FIRST + "loader = DataLoader(data, batch_size=8)\n" + SECOND
    assert [name for name, _ in later(text)] == ["wider", "other", "loader"]


def test_what_changes_a_later_model_comes_before_its_prepare() -> None:
    loaded = "wider.load_state_dict(torch.load('w.pt'))\n"
    text = FIRST + SECOND.replace("train(", loaded + "train(")
    assert {at for _, at in later(text)} == {line_of(text, "wider.load")}


def test_the_move_of_a_later_model_goes_if_nothing_runs_it_first() -> None:
    moved = "nn.Linear(4, 2).to(device)"
    assert dropped(FIRST + SECOND).count(moved) == 2
    runs = SECOND.replace("other =", "print(wider(torch.rand(1, 4, device=device)))\nother =")
    assert dropped(FIRST + runs).count(moved) == 1


def test_a_model_that_is_built_for_a_test_is_not_prepared() -> None:
    text = FIRST + "model = nn.Linear(4, 2).to(device)\nmodel.load_state_dict(torch.load('w.pt'))\n"
    text += "for x, y in loader:\n    print(model(x.to(device)))\n"
    assert later(text) == []


def test_a_copy_of_a_prepared_model_is_left() -> None:
    copied = SECOND.replace("nn.Linear(4, 2).to(device)", "copy.deepcopy(model)")
    assert refusal("import copy\n" + FIRST + copied) == (
        "`wider` is trained later and made of `model`, which has been prepared by then"
    )


@pytest.mark.parametrize("condition", ["if wide:\n", "for _ in range(2):\n"])
def test_a_later_model_that_is_built_inside_of_something_is_left(condition: str) -> None:
    lines = "wider = nn.Linear(4, 2).to(device)\nother = torch.optim.SGD(wider.parameters(), lr=0.1)\n"
    inside = condition + "".join(f"    {line}\n" for line in lines.splitlines())
    assert "built after the training has begun" in refusal(FIRST + inside + "train(wider, other, loader)\n")


def test_an_optimizer_that_each_epoch_builds_is_left() -> None:
    again = TRAINED.replace("    for x", "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n    for x", 1)
    assert "optimizer" in refusal(BUILT + again)


def test_what_is_built_too_late_for_its_own_training_is_left() -> None:
    early = FIRST + "if resumes:\n    train(wider, other, loader)\n" + SECOND
    assert refusal(early) == "`wider` is built after the training has begun"
