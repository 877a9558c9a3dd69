"""Which values come out of a shared loader, so that their moves go, and which do not."""

from __future__ import annotations

import pytest

from tests.migrate.analysis.reading import BUILT, STEP, dropped, kept


def loop(body: str, target: str = "x, y") -> str:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return f"{BUILT}for epoch in range(2):\n    for {target} in loader:\n{lines}{STEP.lstrip(chr(10))}"


@pytest.mark.parametrize(
    ("body", "target"),
    [
        ("x = x.to(device)", "x, y"),
        ("x = x.float().view(-1, 4).to(device)", "x, y"),
        ("x = batch[0].to(device)", "batch"),
        ("x = batch['x'].cuda(non_blocking=True)", "batch"),
        ("x = torch.autograd.Variable(x.cuda())", "x, y"),
        ("x, y = [part.to(device) for part in batch]", "batch"),
        ("x, y = (part.to(device) for part in batch)", "batch"),
        ("batch = {k: v.to(device) for k, v in batch.items()}\nx = batch['x']", "batch"),
        ("for k in batch:\n    batch[k] = batch[k].to(device)\nx = batch['x']", "batch"),
        ("if use_cuda:\n    x = x.cuda()", "x, y"),
        ("a = x\nx = a.to(device)", "x, y"),
        ("x = (x if plain else y).to(device)", "x, y"),
    ],
)
def test_moves_of_a_batch_go(body: str, target: str) -> None:
    moves = [move for move in dropped(loop(body, target)) if not move.startswith("nn.")]
    assert len(moves) == 1
    assert not kept(loop(body, target))


@pytest.mark.parametrize(
    "body",
    [
        "noise = torch.randn(4).to(device)",
        "x = torch.cat([x, torch.ones(4, 1)], 1).to(device)",
        "x = augment(x).to(device)",
        "x = x.cpu().to(device)",
        "x = torch.from_numpy(x.numpy()).to(device)",
        "x = hidden.to(device)",
        "x = (x if plain else torch.zeros(4)).to(device)",
        "x = [torch.zeros(1).to(device) for part in x]",
    ],
)
def test_moves_of_what_the_loop_makes_stay(body: str) -> None:
    assert len(kept(loop(body))) == 1


@pytest.mark.parametrize("body", ["x = x.to(torch.float16)", "x = x.to('cpu')", "x = x.to(y)", "x = x.to(y.device)"])
def test_what_is_no_move_to_the_device_is_not_looked_at(body: str) -> None:
    assert kept(loop(body)) == []
    assert dropped(loop(body)) == ["nn.Linear(4, 2).to(device)"]


def test_the_counter_of_a_loop_is_no_batch() -> None:
    text = loop("n = torch.tensor(i).to(device)", "i, (x, y)").replace("in loader", "in enumerate(loader)")
    assert kept(text) == ["torch.tensor(i).to(device)"]


def test_a_parameter_that_is_handed_anything_else_keeps_its_move() -> None:
    text = BUILT + "def score(x):\n    return model(x.to(device))\n"
    text += "for x, y in loader:\n    loss = score(x).sum()\n    loss.backward()\n    optimizer.step()\n"
    assert "x.to(device)" in dropped(text)
    assert "x.to(device)" in kept(text + "score(torch.zeros(4))\n")
