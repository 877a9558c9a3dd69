"""How a loss is reduced: said for every loss that is not proven to be a mean over the batch."""

from __future__ import annotations

from textwrap import indent

import pytest

from tests.migrate.rules.scripts import codes, training
from tests.migrate.rules.verbs import noted

SAID = {
    "sum": "is summed over the batch",
    "maybe": "may be summed over the batch",
    "uneven": "differs from batch to batch",
    "weighted": "weighted by class",
    "between": "between samples of a batch",
    "unknown": "how the loss is reduced",
}


def told(kind: str, loss: str, functions: str = "", ready: str = "", inside: str = "") -> None:
    source = training(functions=functions, ready=ready, inside=inside, loss=loss)
    if kind == "mean":
        assert "AM802" not in codes(source), noted(source, "AM802")
        assert "AM812" not in codes(source) or SAID["unknown"] not in noted(source, "AM812")
    else:
        assert SAID[kind] in noted(source, "AM812" if kind == "unknown" else "AM802")


@pytest.mark.parametrize(
    ("kind", "loss"),
    [
        ("mean", "F.cross_entropy(model(x), y)"),
        ("mean", "-torch.mean(model(x))"),
        ("mean", "F.relu(1 - model(x)).mean() + 0.1 * model(-x).mean()"),
        ("mean", "model(x).pow(2).sum(1).mean()"),
        ("mean", "sum(F.cross_entropy(model(x), y) for _ in range(3)) / 3"),
        ("mean", "torch.stack([F.cross_entropy(model(x), y), model(x).mean()]).sum()"),
        ("mean", "F.cross_entropy(model(x), y) + 0.1 * sum(p.norm() for p in model.parameters())"),
        ("mean", "F.cross_entropy(model(x), y) + 0.1 * model.weight.pow(2).sum()"),
        ("mean", "F.cross_entropy(model(x), y) + 0.1 * torch.sum(model.first.weights ** 2)"),
        ("mean", "options().loss_weight * F.cross_entropy(model(x), y)"),
        ("mean", "(model(x).sum() / x.size(0) if fast else model(x).mean())"),
        ("mean", "{'first': F.cross_entropy(model(x), y)}['first']"),
        ("mean", "F.mse_loss(model(x), torch.fliplr(x))"),
        ("mean", "F.mse_loss(model(x), torch.cos(3 * y) * torch.sin(x))"),
        ("mean", "F.mse_loss(model(x), x.flip(1))"),
        ("mean", "F.mse_loss(model(x), torch.roll(x, 1, dims=(1, 2)))"),
        ("mean", "F.cross_entropy(*map(lambda part: part.to(device), (model(x), y)))"),
        ("sum", "F.cross_entropy(model(x), y) + (model(x) ** 2).sum()"),
        ("mean", "model(x).sum() / (x.size(0) * 28 * 28)"),
        ("unknown", "model(x).sum() / (x.size(0) * x.size(1))"),
        ("sum", "F.cross_entropy(model(x), y) * x.size(0)"),
        ("sum", "F.cross_entropy(model(x), y, reduction='sum') / 3"),
        ("sum", "sum(F.cross_entropy(model(x), y, reduction='none'))"),
        ("uneven", "F.cross_entropy(model(x), y, ignore_index=0)"),
        ("uneven", "F.cross_entropy(model(x)[y > 0], y[y > 0], reduction='none').mean()"),
        ("weighted", "F.cross_entropy(model(x), y, torch.ones(2))"),
        ("unknown", "model(x, labels=y).loss"),
        ("unknown", "F.cross_entropy(model(x), y, reduction=kind)"),
        ("unknown", "F.cross_entropy(model(x), y) + outside(x)"),
        ("unknown", "torch.norm(model(x))"),
        ("between", "F.mse_loss(model(x), torch.flip(x, [axis]))"),
        ("between", "F.mse_loss(model(x), torch.roll(x, 1))"),
        ("unknown", "model(x).sum(0).mean()"),
        ("unknown", "sum(model(x).values())"),
        ("unknown", "sum(term for term in model(x).values())"),
        ("unknown", "sum([0.5 * term for name, term in model(x).items()])"),
        ("maybe", "sum(model(x))"),
        ("unknown", "torch.stack(list(model(x).values())).sum()"),
        ("between", "F.cross_entropy(model(x) @ model(-x).t(), y)"),
        ("between", "F.cross_entropy(torch.mm(model(x), model(-x).t()), y)"),
        ("between", "torch.cdist(model(x), model(-x)).mean()"),
        ("mean", "F.cross_entropy(model(x) @ torch.ones(2, 2), y)"),
        ("mean", "F.cross_entropy(torch.mm(model(x), torch.ones(2, 2)), y)"),
        ("mean", "F.cross_entropy(model(x).mm(torch.ones(2, 2)), y)"),
        ("between", "(model(x) / torch.exp(torch.mm(model(x), model(x).t())).sum(dim=-1)).log().mean()"),
        ("unknown", "(model(x) * outside(x)).mean()"),
        ("mean", "F.mse_loss(model(x), torch.FloatTensor(4, 1).fill_(1.0))"),
        ("mean", "F.mse_loss(model(x), Kind(4, 1).fill_(1.0))"),
        ("mean", "F.mse_loss(model(x), y) / len({'a': x})"),
        ("mean", "(F.cross_entropy(model(x), y, reduction='none') * model(x).amax(1).ge(0.9).float()).mean()"),
        ("unknown", "torch.sqrt(F.mse_loss(model(x), y))"),
        ("unknown", "torch.log(torch.sum(torch.exp(model(x))))"),  # sums no samples' losses up
        ("unknown", "model(x).exp().sum().log()"),
        ("mean", "F.mse_loss(torch.hstack((model(x), model(-x))), torch.hstack((y, y)))"),
        ("mean", "F.mse_loss(torch.vstack((model(x), model(-x))), torch.vstack((y, y)))"),
        ("unknown", "F.mse_loss(model(x), y) ** 0.5"),
        ("unknown", "F.mse_loss(model(x), y) * F.mse_loss(model(-x), y)"),
        ("unknown", "F.mse_loss(model(x), y) / outside(y)"),
        ("unknown", "F.mse_loss(outside(model(x)), y)"),
        ("unknown", "outside(model(x)).mean()"),
        ("mean", "np.random.beta(1, 1) * F.mse_loss(model(x), y)"),
        ("uneven", "F.mse_loss(model(x), y, reduction='sum') / (y > 0).sum().item()"),
    ],
)
def test_an_expression(kind: str, loss: str) -> None:
    functions = "from elsewhere import outside, kind, fast, options\n"
    told(kind, loss, functions=functions + "Kind = torch.cuda.FloatTensor if fast else torch.FloatTensor\n")


def test_terms_that_are_asked_for_by_their_names_are_not_samples() -> None:
    told("unknown", "terms = model(x)\n        loss = sum(terms[name] for name in terms)")


@pytest.mark.parametrize(
    ("kind", "criterion"),
    [
        ("mean", "nn.CrossEntropyLoss(weight=None)"),
        ("mean", "F.cross_entropy"),
        ("mean", "lambda out, y: F.cross_entropy(out, y)"),
        ("mean", "{'a': nn.CrossEntropyLoss(), 'b': nn.MSELoss()}[kind]"),
        ("maybe", "{'a': nn.CrossEntropyLoss(), 'b': nn.MSELoss(reduction='sum')}[kind]"),
        ("sum", "partial(F.cross_entropy, reduction='sum')"),
        ("sum", "focal"),
        ("maybe", "[nn.CrossEntropyLoss(), focal][kind]"),
        ("maybe", "kinds[kind]"),
        ("weighted", "lambda out, y: F.cross_entropy(out, y, weight=torch.ones(2))"),
        ("weighted", "nn.CrossEntropyLoss(torch.ones(2))"),
        ("unknown", "DiceLoss()"),
    ],
)
def test_a_criterion(kind: str, criterion: str) -> None:
    functions = (
        "from functools import partial\nfrom elsewhere import DiceLoss, kind\n"
        "def focal(out, y):\n    return (out - y).sum()\nkinds = [nn.CrossEntropyLoss(), focal]\n"
    )
    told(kind, "rate(model(x), y)", functions, f"rate = {criterion}")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("mean", "rows = (out - y) ** 2\nreturn rows.mean()"),
        ("mean", "first = [i for i in range(0, len(out), 2)]\nreturn F.mse_loss(out[first], y[first])"),
        ("uneven", "kept = [i for i in range(len(y)) if y[i] > 0]\nreturn F.mse_loss(out[kept], y[kept])"),
        ("mean", "total = ((out - y) ** 2).sum()\ntotal /= len(out)\nreturn total"),
        ("mean", "total = 0\nfor _ in range(3):\n    total += F.mse_loss(out, y)\nreturn total"),
        ("maybe", "total = 0\nfor o, t in zip(out, y):\n    total += F.mse_loss(o, t)\nreturn total"),
        ("maybe", "total = 0\nfor i in range(len(out)):\n    total += F.mse_loss(out[i], y[i])\nreturn total"),
        ("sum", "parts = []\nfor o, t in zip(out, y):\n    parts.append(F.mse_loss(o, t))\nreturn sum(parts)"),
        (
            "mean",
            "parts = []\nfor o, t in zip(out, y):\n    parts.append(F.mse_loss(o, t))\nreturn sum(parts) / len(parts)",
        ),
        ("mean", "total = 0\nfor head in [out, out * 2]:\n    total += F.mse_loss(head, y)\nreturn total"),
        ("mean", "total = 0\nfor o, t in zip(out, y):\n    total += F.mse_loss(o, t)\nreturn total / len(out)"),
        ("mean", "parts = []\nparts.append(F.mse_loss(out, y))\nreturn sum(parts)"),
        ("uneven", "total = ((out - y) ** 2).sum()\nmany = (y > 0).sum()\ntotal /= many\nreturn total"),
        ("sum", "parts = {}\nparts['a'] = F.mse_loss(out, y, reduction='sum')\nreturn sum(parts.values())"),
        ("maybe", "if out is None:\n    return out.mean()\nreturn out.sum()"),
        ("unknown", "from elsewhere import Layer\nreturn -Layer()(out, y)"),
    ],
)
def test_a_function(kind: str, body: str) -> None:
    told(kind, "cost(model(x), y)", f"def cost(out, y):\n{indent(body, '    ')}\n")


@pytest.mark.parametrize(
    ("kind", "listed"),
    [
        (
            "mean",
            "kept = []\nfor name, p in model.named_parameters():\n    if 'bias' not in name:\n        kept.append(p)",
        ),
        ("mean", "kept = [p for p in model.parameters()]"),
        ("mean", "kept = chosen(model)"),
        ("sum", "kept = [data[0][0]]"),
    ],
)
def test_a_penalty_over_a_list_of_weights(kind: str, listed: str) -> None:
    functions = (
        "def chosen(net):\n    kept = []\n    for p in net.parameters():\n        kept.append(p)\n    return kept\n"
    )
    told(kind, "F.cross_entropy(model(x), y) + 0.1 * sum((p ** 2).sum() for p in kept)", functions, listed)


def test_a_criterion_that_is_handed_over_as_it_is_built():
    functions = "def cost(out, y, rate):\n    return rate(out, y)\n"
    told("mean", "cost(model(x), y, nn.CrossEntropyLoss())", functions)
    told("sum", "cost(model(x), y, nn.CrossEntropyLoss(reduction='sum'))", functions)


def test_a_loss_that_a_layer_of_a_library_makes_inside_the_model():
    functions = (
        "from fields import Field\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.body, self.field = nn.Linear(3, 2), Field(2)\n    def forward(self, x, y):\n"
        "        return -self.field(self.body(x), y)\n"
    )
    source = training(functions=functions, loss="model(x, y)").replace("model = nn.Linear(3, 2)", "model = Net()")
    assert SAID["unknown"] in noted(source, "AM812")


def test_a_number_that_every_call_leaves_at_its_default() -> None:
    functions = (
        "def balance(counts, beta=0.9):\n    weights = (1 - beta) / (1 - torch.pow(beta, counts))\n"
        "    return weights / weights.sum()\n"
        "def cost(out, y, weights):\n    return (F.cross_entropy(out, y, reduction='none') * weights[y]).mean()\n"
    )
    told("mean", "cost(model(x), y, weights)", functions, "weights = balance(torch.ones(2))")


FULL_BATCH = (
    "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
    "graph = torch.load('graph.pt')\nmodel = nn.Linear(4, 3)\noptimizer = torch.optim.Adam(model.parameters())\n"
    "seen = graph.y > 0\n"
    "for epoch in range(9):\n    rows = graph.y > 0\n    loss = F.cross_entropy(model(graph.x)[{0}], graph.y[{0}])\n"
    "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n"
)


def test_rows_that_are_chosen_above_the_loop_are_as_many_in_each_step() -> None:
    assert "AM802" not in codes(FULL_BATCH.format("seen"))
    assert "may differ between processes" in noted(FULL_BATCH.format("rows"), "AM802")


def test_targets_that_a_library_parts_are_numbers() -> None:
    functions = "from sklearn.model_selection import train_test_split\n"
    parted = "held, rest = train_test_split(torch.randn(4, 2), test_size=0.5)\n"
    told("mean", "F.mse_loss(model(x), held.float())", functions, parted)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("mean", "model(mid).sum(), mid"),
        ("mean", "outputs=model(mid).sum(), inputs=mid, create_graph=True"),
        ("mean", "model(mid), mid, torch.ones(4, 2)"),
        ("mean", "[model(mid).sum()], [mid]"),
        ("sum", "model(mid).sum(), model.weight"),
        ("sum", "model(mid).sum(), list(model.parameters())"),
    ],
)
def test_a_gradient_by_samples_has_a_row_for_each_whatever_adds_up_what_it_is_taken_of(kind: str, given: str):
    slope = f"mid = (0.5 * x).requires_grad_(True)\n        slope = torch.autograd.grad({given})[0]\n"
    told(kind, "0\n        " + slope + "        loss = model(x).mean() + ((slope.norm(2, dim=1) - 1) ** 2).mean()")


def test_a_sum_of_gradients_by_samples_is_a_sum():
    slope = "mid = (0.5 * x).requires_grad_(True)\n        slope = torch.autograd.grad(model(mid).sum(), mid)[0]\n"
    told("sum", "0\n        " + slope + "        loss = model(x).mean() + slope.pow(2).sum()")


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("mean", ""),
        ("mean", ", how='mean'"),
        ("maybe", ", how='sum'"),
        ("maybe", ", how=args.how"),
        ("maybe", ", **vars(args)"),
    ],
)
def test_a_call_leaves_out_what_its_words_do_not_choose(kind: str, given: str) -> None:
    body = (
        "each = F.cross_entropy(scores, tags, reduction='none')\n"
        "if how == 'sum':\n    return each.sum()\nelif how is None:\n    return each.max()\nreturn each.mean()\n"
    )
    function = f"def marks(scores, tags, how='mean'):\n{indent(body, '    ')}"
    method = "class Marks(nn.Module):\n" + indent(function.replace("marks(", "forward(self, "), "    ")
    other = "marks(model(torch.ones(2, 3)), torch.ones(2).long(), how='sum')"  # of which the loss has no part
    told(kind, f"marks(model(x), y{given})", functions=function, ready=other)
    told(kind, f"marks(model(x), y{given})", functions=method, ready="marks = Marks()")


def test_a_tensor_class_under_another_name_makes_tensors():
    of_kind = (
        "if torch.cuda.is_available():\n    Numbers = torch.cuda.FloatTensor\nelse:\n    Numbers = torch.FloatTensor\n"
    )
    told("mean", "F.mse_loss(model(x), Numbers([[1.0]]) / 2)", functions=of_kind)


def test_a_criterion_is_the_one_under_its_key():
    kept = "kept = {'name': name(), 'model': model, 'error': nn.MSELoss()}\n"
    told("mean", "kept['error'](model(x), y)", ready=kept)
    told("sum", "kept['error'](model(x), y)", ready=kept.replace("()}", "(reduction='sum')}"))
