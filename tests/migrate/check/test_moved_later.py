"""AM969: a model that was run before it was moved, and would be run after prepare()."""

from __future__ import annotations

import pytest

from tests.migrate.check.reading import said

BEFORE = (
    "import torch\ndevice = torch.device('cuda')\nnet = Net()\ndef train(writer):\n    {run}\n    net.to(device)\n"
    "    for x in data:\n        net(x.to(device)).sum().backward()\ntrain(writer)\n"
)
AFTER = (
    "import torch\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\nnet = Net()\n{above}"
    "def train(writer):\n    {run}\n{inside}    for x in data:\n        accelerator.backward(net(x).sum())\ntrain(writer)\n"
)
PREPARE = "net, data = accelerator.prepare(net, data)\n"


@pytest.mark.parametrize(
    "run", ["writer.add_graph(net, torch.rand(2, 3))", "print(net(torch.rand(2, 3)))", "summary(net, (3,))"]
)
def test_a_model_that_is_run_before_its_move(run: str) -> None:
    assert said("AM969", BEFORE.format(run=run), AFTER.format(run=run, above=PREPARE, inside=""))
    below = f"    {PREPARE}"
    assert not said("AM969", BEFORE.format(run=run), AFTER.format(run=run, above="", inside=below))


@pytest.mark.parametrize("run", ["print(net)", "writer.add_scalar('size', 1)", "net.train()"])
def test_what_runs_nothing_may_stand_above(run: str) -> None:
    assert not said("AM969", BEFORE.format(run=run), AFTER.format(run=run, above=PREPARE, inside=""))


def test_a_move_that_stays_below_prepare_comes_too_late() -> None:
    run = "writer.add_graph(net, torch.rand(2, 3))"
    stays = "    net.to(accelerator.device)\n"
    assert said("AM969", BEFORE.format(run=run), AFTER.format(run=run, above=PREPARE, inside=stays))
