"""Backward passes and the loops over loaders around them."""

from __future__ import annotations

import pytest
from accel_migrate.analysis.values.loops import loader_loops

from tests.migrate.analysis.reading import BUILT, TRAINED, prepared, refusal, script, training

TORCH = "import torch\nfrom torch import nn\n"


@pytest.mark.parametrize(
    "text",
    [
        "loss.backward()",
        "(a + b).backward()",
        "loss.mean().backward()",
        "losses['total'].backward(retain_graph=True)",
        "torch.autograd.backward(loss)",
        "self_loss(x).backward(create_graph=True)",
    ],
)
def test_is_a_backward_pass(text: str) -> None:
    assert len(script(TORCH + text).backwards) == 1


@pytest.mark.parametrize(
    "text",
    [
        "y.backward(torch.ones(3))",
        "y.backward(gradient=g)",
        "torch.autograd.backward([a, b], [ga, gb])",
        "class Mesh:\n    def backward(self): ...\nmesh = Mesh()\nmesh.backward()",
        "class Layer(torch.autograd.Function):\n    def run(self):\n        self.backward()",
        "class Layer(Base):\n    def backward(self):\n        super().backward()",
        "model = nn.Linear(1, 1)\nmodel.backward()",
        "import navigation\nnavigation.backward()",
        "backward()",
    ],
)
def test_is_no_backward_pass(text: str) -> None:
    assert not script(TORCH + text).backwards


@pytest.mark.parametrize(
    "iterable",
    [
        "loader",
        "enumerate(loader)",
        "enumerate(loader, 1)",
        "tqdm(enumerate(loader), total=9)",
        "tqdm(loader, desc='train')",
        "itertools.islice(loader, 10)",
    ],
)
def test_loader_is_seen_through(iterable: str) -> None:
    loop = training(BUILT + TRAINED.replace("in loader", f"in {iterable}")).loops[0]
    assert loop.trains and loop.module.source.code(loop.loader) == "loader"


def test_loaders_side_by_side_are_both_shared() -> None:
    text = BUILT + "other = DataLoader(more)\n"
    text += TRAINED.replace("for x, y in loader", "for (x, y), z in zip(loader, other)")
    assert prepared(text) == ["model", "optimizer", "loader", "other"]


def test_a_loader_read_by_next_is_shared() -> None:
    text = BUILT + "it = iter(loader)\nfor step in range(9):\n    x, y = next(it)\n"
    text += "    loss = model(x).sum()\n    loss.backward()\n    optimizer.step()\n"
    assert prepared(text) == ["model", "optimizer", "loader"]


def test_a_loader_that_is_read_before_the_optimizer_exists_is_prepared_before_that() -> None:
    text = BUILT.replace("optimizer =", "it = iter(loader)\noptimizer =")
    text += "for step in range(9):\n    x, y = next(it)\n    loss = model(x).sum()\n"
    text += "    loss.backward()\n    optimizer.step()\n"
    (training,) = script(text).trainings
    assert [one.built.text for one in training.place.later] == ["optimizer"]


def test_looking_at_one_batch_is_no_training() -> None:
    assert prepared(BUILT + "x, y = next(iter(peek_loader))\n" + TRAINED) == ["model", "optimizer", "loader"]


EPOCH = """
def run(loader, optimizer=None):
    total = 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = nn.functional.mse_loss(model(x), y)
        if optimizer is not None:
            loss.backward()
            optimizer.step()
        total += loss.item()
    return total / len(loader.dataset)
"""


def test_the_loader_of_a_call_that_only_evaluates_stays_whole() -> None:
    text = BUILT + "valid_loader = DataLoader(v)\n" + EPOCH + "run(loader, optimizer)\nrun(valid_loader)\n"
    assert prepared(text) == ["model", "optimizer", "loader"]
    assert len(training(text).kept) == 2, "batches of the whole loader are still moved"


STEP = """
def handle(x, y, optimizer=None):
    loss = nn.functional.mse_loss(model(x), y)
    if optimizer is not None:
        loss.backward()
        optimizer.step()
    return loss.item()

for x, y in loader:
    handle(x, y, optimizer)
for x, y in valid_loader:
    handle(x, y)
for x, y in valid_loader:
    handle(x, y, optimizer=other)
"""


def test_a_loop_trains_by_what_it_hands_to_the_function_that_may_train() -> None:
    read = script(BUILT + "valid_loader = DataLoader(v)\n" + STEP)
    loops = loader_loops(read.graph, read.backwards)
    assert [loop.trains for loop in loops] == [True, False, True], "what is not known may be an optimizer"


@pytest.mark.parametrize("said", ["train=True", "phase='train'", "evaluate=False"])
def test_a_flag_tells_whether_a_call_trains(said: str) -> None:
    name, value = said.split("=")
    test = {"train": "train", "phase": "phase == 'train'", "evaluate": "not evaluate"}[name]
    body = EPOCH.replace("optimizer=None", name).replace("optimizer is not None", test)
    other = {"True": "False", "False": "True"}.get(value, "'val'")
    text = BUILT + "valid_loader = DataLoader(v)\n" + body + f"run(loader, {value})\nrun(valid_loader, {other})\n"
    assert prepared(text) == ["model", "optimizer", "loader"]


@pytest.mark.parametrize(
    ("asked", "first", "second", "known"),
    [
        ("optimizer is None", False, True, True),
        ("optimizer is not None", True, False, True),
        ("optimizer is None", False, False, False),
        ("model.training", True, False, False),
    ],
)
def test_a_flag_that_is_set_in_two_branches(asked: str, first: bool, second: bool, known: bool) -> None:
    flag = f"    if {asked}:\n        trains = {first}\n    else:\n        trains = {second}\n    total = 0\n"
    body = EPOCH.replace("    total = 0\n", flag).replace(
        "if optimizer is not None:\n            loss", "if trains:\n            loss"
    )
    text = BUILT + "valid_loader = DataLoader(v)\n" + body + "run(loader, optimizer)\nrun(valid_loader)\n"
    if known:
        assert prepared(text) == ["model", "optimizer", "loader"]
    else:
        assert "by a condition" in refusal(text)


def test_a_call_that_trains_for_all_one_can_tell_is_left() -> None:
    body = EPOCH.replace("optimizer=None", "flag").replace("optimizer is not None", "flag")
    text = BUILT + "valid_loader = DataLoader(v)\n" + body + "run(loader, one())\nrun(valid_loader, two())\n"
    assert "by a condition" in refusal(text)


def test_a_condition_inside_the_loop_with_one_loader_is_no_evaluation() -> None:
    text = TRAINED.replace("        loss.backward()", "        if loss > 0:\n            loss.backward()")
    assert prepared(BUILT + text) == ["model", "optimizer", "loader"]


def test_what_a_function_calls_is_told_in_one_order() -> None:
    names = [f"step_{number}" for number in range(20)]
    text = "".join(f"def {name}(): ...\n" for name in names) + "def run():\n"
    found = script(TORCH + text + "".join(f"    {name}()\n" for name in names))
    (called,) = found.graph.callees.values()
    assert [function.name for function in called] == names
