"""Functions that take the Accelerator in place of their device, and what they read of it."""

from __future__ import annotations

from tests.migrate.rules.verbs import migrated

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader

def train(model, device, loader, optimizer):{described}
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
{reads}

def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(data, batch_size=4)
    model = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, device, loader, optimizer)

main()
"""


def test_one_line_asks_the_accelerator() -> None:
    text = migrated(SCRIPT.format(described="", reads="        noise = torch.randn(4, device=device)"))
    assert "noise = torch.randn(4, device=accelerator.device)" in text


def test_many_lines_keep_the_name() -> None:
    reads = "        noise = torch.randn(4, device=device)\n        more = torch.zeros(4).to(device)"
    head = "def train(model, accelerator, loader, optimizer):\n"
    text = migrated(SCRIPT.format(described="", reads=reads))
    assert f"{head}    device = accelerator.device\n    for x, y in loader:\n" in text and reads in text
    text = migrated(SCRIPT.format(described='\n    """Trains."""', reads=reads))
    assert f'{head}    """Trains."""\n    device = accelerator.device\n    for x, y' in text


def test_lines_that_go_do_not_count() -> None:
    text = migrated(SCRIPT.format(described="", reads=""))
    assert "device" not in text.partition("def train(model, accelerator")[2].partition("def main")[0]


def test_an_argument_has_a_line_of_its_own_where_the_others_have() -> None:
    text = SCRIPT.format(described="", reads="")
    text = text.replace(
        "def train(model, device, loader, optimizer):", "def train(\n    model,\n    loader,\n    n=2,\n):"
    )
    text = text.replace("        optimizer.step()", "        steps.step()").replace(
        "    for x", "    steps = made(model)\n    for x"
    )
    text = text.replace(
        "train(model, device, loader, optimizer)", "train(\n        model,\n        loader,\n        n=3,\n    )"
    )
    text = text.replace("to(device), y.to(device)", "cuda(), y.cuda()")
    text = text.replace(
        "def train", "def made(model):\n    return torch.optim.SGD(model.parameters(), lr=0.1)\n\ndef train"
    )
    result = migrated(text)
    assert "def train(\n    model,\n    loader,\n    accelerator,\n    n=2,\n):" in result
    assert "train(\n        model,\n        loader,\n        accelerator,\n        n=3,\n    )" in result
