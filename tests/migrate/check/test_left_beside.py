"""AM967: a loop that is left as it was shares nothing that is trained with one that is migrated."""

from __future__ import annotations

import pytest

from tests.migrate.check.reading import said

TOP = (
    "import torch\nfrom torch import nn\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\n"
    "net, judge = nn.Linear(4, 4), nn.Linear(4, 1)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\n{}\n"
    "net, opt, data = accelerator.prepare(net, opt, data)\n"
)
OTHER = "other = torch.optim.SGD(judge.parameters(), lr=0.1)"
LOOP = "for x in data:\n    loss = {}\n    accelerator.backward(loss)\n    opt.step()\n"


@pytest.mark.parametrize(
    "trained",
    [
        OTHER,
        "def stepper(m):\n    return torch.optim.SGD(m.parameters(), lr=0.1)\nother = stepper(judge)",
        "class Side:\n    def __init__(self, m):\n        self.m = m\n"
        "        self.o = torch.optim.SGD(self.m.parameters())\nSide(judge)",
        "nets = {'judge': judge}\nother = torch.optim.SGD(list(nets['judge'].parameters()), lr=0.1)",
        "twin = judge\nother = torch.optim.SGD([{'params': twin.parameters()}], lr=0.1)",
        OTHER + "\nfor p in judge.parameters():\n    p.requires_grad = wanted",
    ],
)
def test_a_loss_through_a_model_that_only_something_else_trains(trained: str) -> None:
    assert said("AM967", "x = 1\n", TOP.format(trained) + LOOP.format("judge(net(x)).mean()"))
    through = "def cost(m, x):\n    return m(net(x)).mean()\n" + LOOP.format("cost(judge, x)")
    assert said("AM967", "x = 1\n", TOP.format(trained) + through)


@pytest.mark.parametrize(
    ("trained", "loss"),
    [
        (OTHER, "net(x).mean()"),
        (OTHER, "net(x).mean() + judge(x).detach()"),
        ("print(sum(p.numel() for p in judge.parameters()), next(judge.parameters()).device)", "judge(net(x)).mean()"),
        (OTHER + "\nfor p in judge.parameters():\n    p.requires_grad = False", "judge(net(x)).mean()"),
        (OTHER + "\njudge.requires_grad_(False)", "judge(net(x)).mean()"),
        (
            "net = nn.Sequential(net, judge)\nother = torch.optim.SGD(judge.parameters(), lr=0.1)",
            "judge(net[0](x)).mean()",
        ),
    ],
)
def test_what_gets_no_gradients_or_is_part_of_what_is_prepared(trained: str, loss: str) -> None:
    assert not said("AM967", "x = 1\n", TOP.format(trained) + LOOP.format(loss))


def test_a_model_that_runs_without_gradients() -> None:
    quiet = "for x in data:\n    with torch.no_grad():\n        y = judge(x)\n    accelerator.backward(net(x) - y)\n"
    assert not said("AM967", "x = 1\n", TOP.format(OTHER) + quiet)


def test_two_models_of_one_function() -> None:
    made = "def build():\n    return nn.Linear(4, 4)\nnet, judge, extra = build(), build(), build()\n"
    trained = made + "other = torch.optim.SGD({}.parameters(), lr=0.1)"
    loop = LOOP.format("judge(net(x)).mean()")
    assert said("AM967", "x = 1\n", TOP.format(trained.format("judge")) + loop)
    assert not said("AM967", "x = 1\n", TOP.format(trained.format("extra")) + loop)


def test_a_loop_that_is_left_and_trains_through_what_is_prepared() -> None:
    migrated = TOP.format(OTHER) + LOOP.format("net(x).mean()")
    left = "for x in rest:\n    {}\n    {}.step()\n"
    assert said("AM967", "x = 1\n", migrated + left.format("judge(net(x)).mean().backward()", "other"))
    assert not said("AM967", "x = 1\n", migrated + left.format("judge(net(x).detach()).mean().backward()", "other"))
    assert not said("AM967", "x = 1\n", migrated + left.format("judge(x).mean().backward()", "other"))


def test_gradients_of_an_input_alone() -> None:
    attack = (
        "def attack(x):\n    net(x).mean().backward()\n    return x + x.grad.sign()\nfor x in rest:\n    attack(x)\n"
    )
    assert not said("AM967", "x = 1\n", TOP.format("") + LOOP.format("net(x).mean()") + attack)


BUILDER = (
    "import torch\nfrom torch import nn\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\n"
    "def build(size):\n    net = nn.Linear(size, 4)\n    net = net.to(device)\n    cost = nn.MSELoss()\n"
    "    opt = torch.optim.SGD(net.parameters(), lr=0.1)\n    return net, cost, opt\n{}\n"
)
UNPACKED = "net, cost, opt = build(4)\n"
PREPARED = "net, opt, data = accelerator.prepare(net, opt, data)\n"
FITTED = (
    "def fit(net, cost, opt, data):\n    " + PREPARED + "    for x, y in data:\n        loss = cost(net(x), y)\n"
    "        accelerator.backward(loss)\n        opt.step()\n    return net\n"
)


@pytest.mark.parametrize(
    "rest",
    [
        UNPACKED + PREPARED + LOOP.format("cost(net(x), y)"),
        "made = build(4)\nnet, cost, opt = made[0], made[1], made[2]\n" + PREPARED + LOOP.format("cost(net(x), y)"),
        FITTED + UNPACKED + "net = fit(net, cost, opt, data)\nprint(net(probe))",
        FITTED
        + "def build_large():\n    return build(9)\nnet, cost, opt = build_large()\nnet = fit(net, cost, opt, data)",
        FITTED + "for size in (4, 8):\n    net, cost, opt = build(size)\n    fit(net, cost, opt, data)",
        FITTED + UNPACKED + "fit(net, cost, opt, data)\nnet, cost, opt = build(8)\nfit(net, cost, opt, data)",
        "class Trainer:\n    def __init__(self):\n        self.net, self.cost, self.opt = build(4)\n"
        "        self.net, self.opt, self.data = accelerator.prepare(self.net, self.opt, data)\n"
        "    def run(self):\n        for x, y in self.data:\n"
        "            accelerator.backward(self.cost(self.net(x), y))\n            self.opt.step()\nTrainer().run()",
    ],
)
def test_what_a_builder_returns_beside_its_optimizer_is_prepared(rest: str) -> None:
    assert not said("AM967", "x = 1\n", BUILDER.format(rest))


def test_a_builder_that_hands_an_optimizer_a_part_of_what_it_returns() -> None:
    built = (
        "def pair():\n    front = nn.Linear(4, 4)\n    front = front.to(device)\n    net = nn.Sequential(front, nn.ReLU())\n"
        "    return net, nn.MSELoss(), torch.optim.SGD(front.parameters(), lr=0.1)\nnet, cost, opt = pair()\n"
    )
    assert not said("AM967", "x = 1\n", BUILDER.format(built + PREPARED + LOOP.format("cost(net(x), y)")))


@pytest.mark.parametrize(
    "other",
    [
        "judge, _, other = build(4)",
        "made = build(4)\njudge = made[0]",
        "def more():\n    return build(1)\njudge = more()[0]",
    ],
)
def test_another_model_of_the_same_builder_that_nothing_prepares(other: str) -> None:
    top = UNPACKED + other + "\n" + PREPARED
    assert said("AM967", "x = 1\n", BUILDER.format(top + LOOP.format("cost(judge(net(x)), y)")))
    assert not said("AM967", "x = 1\n", BUILDER.format(top + LOOP.format("cost(net(x), y)")))


def test_a_loss_that_is_added_up_over_the_rows_of_an_output() -> None:
    rows = (
        "for x in data:\n    loss = 0\n    for row, label in zip({}, x):\n        loss = loss + (row - label).sum()\n"
    )
    step = "    accelerator.backward(loss)\n    opt.step()\n"
    assert not said("AM967", "x = 1\n", TOP.format("") + rows.format("net(x)") + step)
    assert said("AM967", "x = 1\n", TOP.format("") + rows.format("other(x)") + step)
