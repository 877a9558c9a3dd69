"""A loss between samples knows those of one process's batch; weights, and what is within a sample, are no samples."""

from __future__ import annotations

from textwrap import indent

import pytest

from tests.migrate.rules.scripts import codes, training
from tests.migrate.rules.verbs import noted, notes

BETWEEN = "the loss is between samples of a batch"
HEAD = (
    "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.body = nn.Linear(3, 2)\n"
)


def is_told(source: str) -> bool:
    return any("between samples of a batch" in note for note in notes(source))


@pytest.mark.parametrize(
    ("paired", "verb"),
    [
        ("u @ v.t()", "is"),
        ("u @ v.T", "is"),
        ("torch.matmul(u, v.T)", "is"),
        ("F.cosine_similarity(u.unsqueeze(1), v.unsqueeze(0), dim=2)", "is"),
        ("(u[:, None] - v[None]).pow(2).sum(2)", "is"),
        ("u @ v.transpose(0, 1)", "is"),
        ("torch.mm(u, v.transpose(-2, -1))", "is"),
        ("u.mm(v.permute(1, 0)) / 0.5", "is"),
        ("F.normalize(u, dim=1) @ F.normalize(v, dim=1).T", "is"),
        ("torch.pdist(u)", "is"),
        ("torch.cdist(u, v)", "may be"),
        ("u - u.flip(0)", "may be"),
        ("u * torch.flip(v, [0])", "may be"),
        ("u * v.roll(1, 0)", "may be"),
        ("u * torch.roll(v, shifts=1, dims=(0, 1))", "may be"),
        ("u.exp() / (u @ v.t()).exp().sum(1, keepdim=True)", "is"),
    ],
)
@pytest.mark.parametrize("after", ["near.exp().mean()", "F.cross_entropy(near, y)"])
def test_rows_that_meet_rows(paired: str, verb: str, after: str) -> None:
    functions = f"def cost(u, v, y):\n    near = {paired}\n    return {after}\n"
    source = training(functions=functions, loss="cost(model(x), model(-x), y)")
    assert f"the loss {verb} between samples of a batch" in noted(source, "AM802")
    assert "AM812" not in codes(source) or "how the loss is reduced" not in noted(source, "AM812")


@pytest.mark.parametrize("loss", ["near.sum()", "F.cross_entropy(near, y, reduction='sum')"])
def test_a_sum_over_pairs_is_both(loss: str) -> None:
    functions = f"def cost(u, v, y):\n    near = u @ v.t()\n    return {loss}\n"
    source = training(functions=functions, loss="cost(model(x), model(-x), y)")
    assert "is summed over the batch" in noted(source, "AM802")
    assert is_told(source)


@pytest.mark.parametrize("unread", ["torch.einsum('nc,mc->nm', u, v)", "torch.addmm(u, u, v.t())"])
def test_what_may_meet_rows_is_said_to_be_unknown(unread: str) -> None:
    functions = f"def cost(u, v):\n    near = {unread}\n    return near.exp().mean()\n"
    source = training(functions=functions, loss="cost(model(x), model(-x))")
    assert "a loss between samples, are of one process's batch" in noted(source, "AM812")


@pytest.mark.parametrize(
    "apart",
    [
        "u @ table.t()",
        "F.cross_entropy(u @ model.weight.t(), v)",
        "u @ torch.ones_like(u).t()",
        "u @ torch.randn(len(u), 2).t()",
        "u @ v.transpose(-2, -1)",
        "torch.bmm(u, v.transpose(1, 2))",
        "torch.einsum('bnc,bmc->bnm', u, v)",
        "torch.einsum('nc,ck->nk', u, v)",
        "u[:, None] - table[None]",
        "u.unsqueeze(1) * v.unsqueeze(1)",
        "F.cosine_similarity(u, v)",
        "u - u.flip(1)",
        "u - torch.roll(u, 1, dims=-1)",
        "u - table.flip(0)",
    ],
)
def test_weights_and_values_within_a_sample(apart: str) -> None:
    functions = f"table = nn.Parameter(torch.ones(2, 2))\ndef cost(u, v):\n    near = {apart}\n    return near.mean()\n"
    assert not is_told(training(functions=functions, loss="cost(model(x), model(-x))"))


@pytest.mark.parametrize(
    ("told", "body"),
    [
        (True, "u = self.body(x)\nnear = u @ u.t()\nreturn F.cross_entropy(near, y)"),
        (True, "u = self.body(x)\nturned = u.t()\nreturn torch.logsumexp(u @ turned, 1).mean()"),
        (False, "return F.cross_entropy(x @ self.body.weight.t(), y)"),
        (False, "return F.cross_entropy(x @ self.kept.t(), y)"),
        (True, "rows = self.body(x)\nreturn F.cross_entropy(x @ rows.permute(1, 0), y)"),
        (True, "return F.cross_entropy(x @ self.body(torch.cat([torch.ones(9, 3), x])).t(), y)"),
    ],
)
def test_a_loss_that_the_model_computes(told: bool, body: str) -> None:
    functions = f"{HEAD}    def forward(self, x, y):\n{indent(body, '        ')}\n"
    source = training(functions=functions, loss="model(x, y)").replace("model = nn.Linear(3, 2)", "model = Net()")
    assert is_told(source) is told


def test_a_criterion_of_the_scripts_own():
    functions = "class Cost(nn.Module):\n    def forward(self, u, v):\n        return (u @ v.t()).diagonal().mean()\n"
    assert is_told(training(functions=functions, ready="cost = Cost()", loss="cost(model(x), y)"))
    assert is_told(training(functions=functions, loss="Cost()(model(x), y)"))


def test_rows_that_are_changed_in_a_loop():
    body = "near = 0\nfor part in (u, -u):\n    part += u\n    near += part @ part.t()\nreturn near.mean()"
    assert is_told(training(functions=f"def cost(u):\n{indent(body, '    ')}\n", loss="cost(model(x))"))


def test_pairs_that_are_only_printed_are_no_part_of_the_loss():
    source = training(inside="print((x @ x.t()).mean())", loss="F.cross_entropy(model(x), y)")
    assert "AM802" not in codes(source)


def test_weights_that_are_repeated_as_often_as_there_are_samples() -> None:
    functions = (
        f"{HEAD}        self.codes = nn.Embedding(16, 2)\n"
        "    def forward(self, x):\n        out = self.body(x).reshape(x.size(0), -1, 2)\n"
        "        near = torch.cdist(out, {side})\n        return near.min(dim=-1).values.mean()\n"
    )
    for side in (
        "self.codes.weight[None].repeat((out.size(0), 1, 1))",
        "self.codes.weight.expand(out.shape[0], 16, 2)",
    ):
        source = training(functions=functions.replace("{side}", side), loss="model(x)")
        assert not is_told(source.replace("model = nn.Linear(3, 2)", "model = Net()"))


def test_rows_that_a_library_is_handed_are_no_part_of_the_loss() -> None:
    functions = "def cost(out, y):\n    return torch.square(out.sum(1) - y).mean()\n"
    after = "with torch.no_grad():\n    found = model(x)\n    near = found @ found.t()\ntorch.save(near, 'near.pt')"
    assert not is_told(training(functions=functions, loss="cost(model(x), y)", after=after))
