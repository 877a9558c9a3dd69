"""What a variable is to training, by what it is built from, what it is passed as and how it is used."""

from __future__ import annotations

import pytest
from accel_migrate.analysis.values.roles import Role

from tests.migrate.analysis.reading import role
from tests.migrate.rules.verbs import migrated, unchanged


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("import torch as t\nm = t.nn.Linear(1, 1)", "m", Role.MODEL),
        ("from torch import optim as o\nx = o.SGD(ps, lr=1)", "x", Role.OPTIMIZER),
        ("import torch\nnn = torch.nn\nm = nn.Linear(1, 1)", "m", Role.MODEL),
        ("from torch.utils.data import DataLoader as DL\nd = DL(x)", "d", Role.LOADER),
        ("import torch\ns = torch.optim.lr_scheduler.StepLR(o, 1)", "s", Role.SCHEDULER),
        ("import torch\nd = torch.device('cuda' if torch.cuda.is_available() else 'cpu')", "d", Role.DEVICE),
        ("d = 'cuda:1'", "d", Role.DEVICE),
        ("from torch.cuda.amp import GradScaler\ns = GradScaler()", "s", Role.SCALER),
        ("from torch import nn\nc = nn.MSELoss()", "c", Role.CRITERION),
        ("from torch import nn\nm = (nn.Linear(1, 1)).to(d).eval()", "m", Role.MODEL),
        ("from torch import nn\na, b = nn.Linear(1, 1), nn.MSELoss()", "a", Role.MODEL),
        ("from torch import nn\nm = nn.Linear(1, 1) if wide else nn.Linear(2, 1)", "m", Role.MODEL),
        ("import torch\nfrom torch import nn\nm = torch.compile(nn.Linear(1, 1))", "m", Role.MODEL),
        ("from torch import nn\nclass Net(nn.Module): ...\nm = Net()", "m", Role.MODEL),
        ("from torch import nn\nclass A(nn.Module): ...\nclass B(A): ...\nm = B()", "m", Role.MODEL),
        ("from torch import nn\ndef build():\n    return nn.Linear(1, 1)\nm = build()", "m", Role.MODEL),
        ("from torch import nn\ndef f(net):\n    pass\nf(nn.Linear(1, 1))", "net", Role.MODEL),
        ("import torch\nm = make()\no = torch.optim.Adam(m.parameters())", "m", Role.MODEL),
        ("from torch.utils.data import DataLoader\nl = DataLoader(x)\nfor batch in l: pass", "batch", Role.BATCH),
        ("from torch.utils.data import DataLoader\nl = DataLoader(x)\ni = iter(l)", "i", Role.ITERATOR),
    ],
)
def test_is_recognised(text: str, name: str, expected: Role) -> None:
    assert role(text, name) == expected


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from other import nn\nm = nn.Linear(1, 1)", "m"),
        ("import torch\ndef torch_like(torch):\n    m = torch.nn.Linear(1, 1)", "m"),
        ("class Net:\n    pass\nm = Net()", "m"),
        ("x = 'cudnn'", "x"),
        ("x = 'cpu_count'", "x"),
        ("from torch import nn\nw = nn.Linear(1, 1).weight", "w"),
        ("game = Game()\ngame.step()", "game"),
        ("for row in table: pass", "row"),
        ("def load(): return open('x')\nf = load()", "f"),
    ],
)
def test_is_nothing_to_training(text: str, name: str) -> None:
    assert role(text, name) == Role.NONE


def test_a_tuple_that_is_made_of_itself_does_not_grow():
    lines = ["import torch", "model = torch.nn.Linear(2, 1)", "pair = (model, 1)"]
    lines += ["pair = (pair, pair, (pair, pair))"] * 4 + ["other = (other, other, (other, other))"] * 4
    assert role("\n".join([*lines, "first, *_ = (model, pair)"]), "first") & Role.MODEL


TORCHTEXT = """
import torch
from torch import nn
from torchtext.data import BucketIterator, Iterator

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def load(train, test, device):
    {made}
    return train_iter, test_iter


def fit(train_iter, optimizer):
    for batch in train_iter:
        loss = nn.functional.cross_entropy(model(batch.text), batch.label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train_iter, test_iter = load(train, test, device)
model = nn.Linear(3, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
fit(train_iter, optimizer)
"""


@pytest.mark.parametrize(
    "made",
    [
        "train_iter, test_iter = BucketIterator.splits((train, test), batch_size=4, device=device)",
        "train_iter = Iterator(train, batch_size=4, device=device)\n    test_iter = Iterator(test, batch_size=4)",
    ],
)
def test_iterators_of_torchtext_are_no_loaders_whatever_their_name(made: str) -> None:
    after = migrated(TORCHTEXT.format(made=made))
    assert "model, optimizer = accelerator.prepare(model, optimizer)" in after


def test_what_may_be_a_loader_or_an_iterator_of_torchtext_is_left():
    made = (
        "if by_hand:\n        train_iter = DataLoader(train, batch_size=4)\n    else:\n"
        "        train_iter = BucketIterator(train, batch_size=4, device=device)\n    test_iter = 1"
    )
    text = TORCHTEXT.format(made=made).replace(
        "from torch import nn", "from torch import nn\nfrom torch.utils.data import DataLoader"
    )
    assert "`train_iter` may be an iterator of torchtext" in unchanged(text)
