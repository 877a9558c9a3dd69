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
