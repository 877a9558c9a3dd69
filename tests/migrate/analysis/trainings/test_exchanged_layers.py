"""AM102: an optimizer that is built before a layer of its model is exchanged keeps the weights of the old layer."""

from __future__ import annotations

import pytest

from tests.migrate.rules.verbs import migrated, notes

SCRIPT = """import torch
from torch import nn
from torch.utils.data import DataLoader

device = "cuda" if torch.cuda.is_available() else "cpu"
loader = DataLoader(data, batch_size=8)


def change_head(whole, classes):
    whole.fc = nn.Linear(16, classes)


def add_head(whole):
    change_head(whole, 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 16)
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        return self.fc(self.body(x))

    def ask(self, classes):
        self.fc = nn.Linear(16, classes)


net = Net()
{built}
net = net.to(device)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
"""
SGD = "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"


def told(built: str) -> list[str]:
    script = SCRIPT.replace("{built}", built)
    assert "accelerator.backward(loss)" in migrated(script)
    return [note for note in notes(script) if "is exchanged" in note]


@pytest.mark.parametrize(
    "exchanged",
    [
        "net.fc = nn.Linear(16, 3)",
        "if len(data) > 9:\n    net.fc = nn.Sequential(nn.ReLU(), nn.Linear(16, 3))",
        "setattr(net, 'fc', nn.Linear(16, 3))",
        "change_head(net, 3)",
        "add_head(net)",
        "net.ask(3)",
        "net.fc.weight = nn.Parameter(torch.zeros(10, 16))",
    ],
)
def test_says_that_the_new_layer_is_not_stepped(exchanged: str) -> None:
    (note,) = told(SGD + exchanged)
    assert "keeps the weights of the old layer" in note
    assert "--strategy fsdp refuses it" in note
    assert not told(f"{exchanged}\n{SGD}")
    assert not told(f"{SGD}{exchanged}\n{SGD}")


def test_what_changes_no_layer() -> None:
    assert not told(SGD + "net.name = 'small'")
    assert not told(SGD + "other = Net()\nother.fc = nn.Linear(16, 3)")
