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


FITS = (
    "import torch\nfrom accel_runtime import Accelerator\n{loads}def build():\n    return Net()\ndef fit():\n    {made}\n"
    "    for x in data:\n        {step}\nif __name__ == '__main__':\n    fit()\n"
)
PREDICTS = "import torch\nfrom train import build\ndevice = torch.device('cuda')\nnet = build(){move}\nprint(net(x.to(device)))\n"


@pytest.mark.parametrize(("loads", "breaks"), [("", True), ("import predict\n", False)])
def test_a_script_that_prepares_nothing_keeps_its_moves(loads: str, breaks: bool) -> None:
    train = FITS.format(loads=loads, made="net = build().cuda()", step="net(x.cuda()).sum().backward()")
    made = "accelerator = Accelerator()\n    net, data = accelerator.prepare(build(), rows)"
    migrated = FITS.format(loads=loads, made=made, step="accelerator.backward(net(x).sum())")
    before = {"train.py": train, "predict.py": PREDICTS.format(move=".to(device)")}
    after = {"train.py": migrated, "predict.py": PREDICTS.format(move="")}
    told = [message for message in said("AM969", before, after) if "no run of this file" in message]
    assert bool(told) is breaks


EVALUATES = (
    "import torch\nfrom net import Net\ndef evaluate(net):\n    print(net(rows.cuda()))\n"
    "{opens}net = Net(){move}\n    evaluate(net)\n{calls}"
)


@pytest.mark.parametrize(
    ("opens", "calls"),
    [("if __name__ == '__main__':\n    ", ""), ("def main():\n    ", "if __name__ == '__main__':\n    main()\n")],
)
def test_what_a_file_that_is_imported_moves_as_a_script_stays(opens: str, calls: str) -> None:
    loads = "from evaluate import evaluate\nfrom net import Net as build\n"
    train = FITS.format(loads=loads, made="net = build().cuda()", step="net(x.cuda()).sum().backward()")
    made = "accelerator = Accelerator()\n    net, data = accelerator.prepare(build(), rows)"
    migrated = FITS.format(loads=loads, made=made, step="accelerator.backward(net(x).sum())")
    others = {"net.py": "from torch import nn\nclass Net(nn.Linear):\n    pass\n"}
    before = {"train.py": train, "evaluate.py": EVALUATES.format(opens=opens, calls=calls, move=".cuda()"), **others}
    for move in ("", ".cuda()"):
        after = {"train.py": migrated, "evaluate.py": EVALUATES.format(opens=opens, calls=calls, move=move), **others}
        told = [message for message in said("AM969", before, after) if "no run of this file" in message]
        assert bool(told) is not bool(move)


def test_functions_that_only_name_each_other_may_be_called_by_a_command_line() -> None:
    shown = "def show(net):\n    net.eval()\n    print(net)\n    net.fit()\nimport fire\nfire.Fire()\n"
    made = "accelerator = Accelerator()\n    net, data = accelerator.prepare(build(), rows)"
    top, _ = FITS.split("if __name__")
    train = top.format(loads="", made="net = build().cuda()", step="net(x.cuda()).sum().backward()\n        show(net)")
    migrated = top.format(loads="", made=made, step="accelerator.backward(net(x).sum())\n        show(net)")
    assert not said("AM969", train + shown, migrated + shown)
