"""Which evaluations are exact on any number of processes once their rows are gathered, and which are not."""

from __future__ import annotations

import ast

import pytest
from accel_migrate.analysis.evaluation.evaluation import Evaluation, Gather, Whole

from tests.migrate.analysis.reading import BUILT, TRAINED, training
from tests.migrate.rules.verbs import unchanged

OPENING = "test_loader = DataLoader(held_out)\ncriterion = nn.CrossEntropyLoss()\n"
OPENING += "each = nn.CrossEntropyLoss(reduction='none')\nhits, names = {}, [1, 2]\n"


def judged(
    body: str, after: str = "", target: str = "x, y", for_accelerate: bool = False, above: str = ""
) -> Evaluation:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    text = (
        f"{BUILT}{OPENING}{above}{TRAINED}total = right = 0\nrows = []\nfor {target} in test_loader:\n{lines}{after}\n"
    )
    (found,) = training(text, for_accelerate=for_accelerate).evaluations
    return found


@pytest.mark.parametrize(
    "body",
    [
        "out = model(x)\nright += (out.argmax(1) == y).sum().item()",
        "out = model(x)\n_, guess = out.max(1)\nright += guess.eq(y).sum().item()\ntotal += y.size(0)",
        "out = model(x)\ntotal += nn.functional.nll_loss(out, y, reduction='sum').item()",
        "out = model(x)\ntotal += criterion(out, y).item() * y.size(0)",
        "out = model(x)\ntotal += criterion(out, y).item() * len(x)",
        "out = model(x)\nrows.append(out.cpu())\nrows.append(y.cpu())",
        "with torch.no_grad():\n    out = model(x)\nright += (out.argmax(1) == y).sum().item()",
        "out = model(x)\ntotal = max(total, (out - y).abs().max().item())",
        "x = x.to(device)\nout = model(x)\nright += (out.argmax(1) == y.to(device)).sum().item()",
        "out = model(x)\ntotal += nn.functional.cross_entropy(out, y, size_average=False).item()",
        "out = model(x)\nright = right + (out.argmax(1) == y).sum().item()",
        "out = model(x)\nrows += out.tolist()\nrows += y.tolist()",
        "count = y.shape[0]\nout = model(x)\ntotal += criterion(out, y).item() * count",
        "model = model.eval()\nout = model(x)\nright += out.argmax(1).eq(y).sum().item()",
        "out = model(x)\nright += (out.argmax(1) == y).float().mean().item() * y.size(0)",
        "out = model(x)\nfor kind in range(3):\n    of_kind = y == kind\n    hits[kind] += out[of_kind].sum().item()",
        "out = model(x)\nfor kind, name in enumerate(names):\n    hits[name] += out[y == kind].sum()",
        "out = model(x)\ncosts = each(out, y)\ntotal = max(total, costs.max().item())",
    ],
)
def test_is_gathered(body: str) -> None:
    found = judged(body)
    assert isinstance(found, Gather), found
    assert found.names[0] == "out"


@pytest.mark.parametrize(
    ("body", "after"),
    [
        ("out = model(x)\ntotal += criterion(out, y).item()", "total /= len(test_loader)"),
        ("out = model(x)\nrows.append(criterion(out, y).item())", "mean = sum(rows) / len(rows)"),
        ("total += criterion(model(x), y).item()", ""),
        ("a = model(x)\nb = model(y)\nright += (a == b).sum().item()", ""),
        ("out = model(x)\nif right > 10:\n    break\nright += (out.argmax(1) == y).sum().item()", ""),
        ("out = model(x)\nsave(out, y)", ""),
        ("out = model(x)\ntotal += out.std().item() + y.float().std().item()", ""),
        ("out = model(x)\ntotal = total + criterion(out, y).item()", ""),
        ("total += y.size(0)\nout = model(x)\nright += (out.argmax(1) == y).sum().item()", ""),
        ("if y.sum() == 0:\n    continue\nout = model(x)\nright += (out.argmax(1) == y).sum().item()", ""),
        ("out = model(x)\nright += (out.argmax(1) == y).sum().item()", "print(out[0])"),
        ("out = model(x)\nrows.append(score(out, y))", "print(sum(rows) / len(rows))"),
        ("out = model(x)\nrows.append((out - y).abs())", "print(sum(r.mean() for r in rows) / len(rows))"),
        ("out = model(x)\nrows.append((2 * (out * y).sum() / (out + y).sum()).cpu())", "print(rows)"),
        ("out = model(x)\ntotal += ((out - out.mean()) * y).sum()", ""),
        ("out = model(x)\ntotal += out.sum() / y.sum()", ""),
        ("out = model(x)\ntotal += (out[0] == y[0]).sum()", ""),
        ("out = model(x)\nright += (out == y).sum()\ntotal += 1", "print(right / total)"),
        ("out = model(x)\ntotal += Overlap()(out, y).item() * y.size(0)", ""),
        ("out = model(x)\nfor kind in range(3):\n    rows.append(out[y == kind])", "rows = torch.cat(rows)"),
        ("out = model(x)\nfor kind in range(3):\n    rows += out[y == kind].tolist()", ""),
        ("out = model(x)\nfor kind in range(3):\n    hits[kind] += (out[y == kind]).mean()", ""),
        (
            "out = model(x)\nfor kind in range(3):\n    if hits[kind] > 9:\n        break\n    hits[kind] += (y == 1).sum()",
            "",
        ),
        ("out = model(x)\nfor kind in range(int(y.max())):\n    hits[kind] += out[y == kind].sum()", ""),
        ("out = model(x)\ntotal = max(total, criterion(out, y).max().item())", ""),
        ("out = model(x)\nif right < 9:\n    right += (out.argmax(1) == y).sum().item()", ""),
    ],
)
def test_no_rows_are_gathered_because_the_figure_depends_on_the_batches(body: str, after: str) -> None:
    assert isinstance(judged(body, after, for_accelerate=True), Whole)
    assert not isinstance(judged(body, after), Gather)


def test_the_size_of_a_local_batch_becomes_that_of_the_gathered_rows() -> None:
    found = judged("out = model(x)\ntotal += criterion(out, y).item() * x.size(0)")
    assert isinstance(found, Gather)
    assert [name for _, name in found.sizes] == ["y"]


COUNTED = "out = model(x)\nright += (out.argmax(1) == y).sum().item()"


@pytest.mark.parametrize(
    ("opening", "closing"), [("list(", ")"), ("', '.join(", ")"), ("[", "]"), ("{", "}"), ("sum([", "])")]
)
def test_a_comprehension_reads_the_batch_of_the_line_where_it_stands(opening: str, closing: str) -> None:
    shown = f"print({opening}y[i].item() for i in range(2){closing})\n"
    above = f"x, y = next(iter(test_loader))\n{shown}"
    assert isinstance(judged(COUNTED, above=above), Gather)
    assert isinstance(judged(COUNTED, after=shown), Whole)


def test_a_generator_that_is_kept_reads_the_batch_of_whenever_it_is_asked() -> None:
    for kept in ("rows = (y[i] for i in range(2))\n", "rows = map(int, (y[i] for i in range(2)))\n"):
        found = judged(COUNTED, above=f"x, y = next(iter(test_loader))\n{kept}")
        assert isinstance(found, Whole)
        assert "`y` of the last batch" in found.reason


def test_loaders_side_by_side_are_read_whole() -> None:
    lines = "    out = model(x)\n    right += (out.argmax(1) == y).sum().item()\n"
    text = f"{BUILT}{OPENING}other_loader = DataLoader(o)\n{TRAINED}right = 0\n"
    text += f"for x, y in zip(test_loader, other_loader):\n{lines}"
    assert all(isinstance(found, Whole) for found in training(text).evaluations)


def test_a_size_that_nothing_reads_any_more_goes() -> None:
    found = judged("count = y.shape[0]\nout = model(x)\ntotal += criterion(out, y).item() * count")
    assert isinstance(found, Gather)
    assert [ast.unparse(statement) for statement in found.unread] == ["count = y.shape[0]"]


def test_a_size_that_is_read_before_the_forward_stays() -> None:
    found = judged("n = y.size(0)\nx = x.view(n, -1)\nout = model(x)\ntotal += criterion(out, y).item() * n")
    assert isinstance(found, Gather)
    assert not found.unread


@pytest.mark.parametrize(
    ("ready", "added", "loss"),
    [
        ("total = 0", "total += criterion(model(x), y)", "total"),
        ("total = 0", "total = total + criterion(model(x), y)", "(total / len(loader))"),
        ("losses = []", "losses.append(criterion(model(x), y))", "sum(losses)"),
        ("losses = []", "losses.append(criterion(model(x), y))", "torch.stack(losses).mean()"),
    ],
)
def test_a_loop_that_adds_up_the_loss_of_one_backward_pass_is_no_evaluation(ready: str, added: str, loss: str) -> None:
    source = f"""
        import torch
        from torch import nn
        from torch.utils.data import DataLoader

        loader = DataLoader(data(), batch_size=4)
        model = nn.Linear(4, 1).cuda()
        criterion = nn.MSELoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(3):
            {ready}
            for x, y in loader:
                x, y = x.cuda(), y.cuda()
                {added}
            optimizer.zero_grad()
            {loss}.backward()
            optimizer.step()
        """
    assert "added up for one backward pass" in unchanged(source)
