"""Functions that take the Accelerator in place of their device, and what they read of it."""

from __future__ import annotations

import pytest

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


def test_an_argument_joins_the_last_line_where_a_line_has_several() -> None:
    text = SCRIPT.format(described="", reads="").replace("to(device), y.to(device)", "cuda(), y.cuda()")
    text = text.replace(
        "def train(model, device, loader, optimizer):", "def train(model, loader,\n          optimizer, n=2):"
    )
    text = text.replace("train(model, device, loader, optimizer)", "train(model, loader,\n          optimizer, n=3)")
    result = migrated(text)
    assert "def train(model, loader,\n          optimizer, accelerator, n=2):" in result
    assert "    train(model, loader,\n          optimizer, accelerator, n=3)" in result


DEFAULTS = """
import torch
from torch import nn
from torch.utils.data import DataLoader

def fit(net, loader, epochs=2, device="cuda"):
    steps = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(epochs):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            steps.zero_grad()
            nn.functional.mse_loss(net(x), y).backward()
            steps.step()

def main():
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = nn.Linear(4, 2).to(place)
    loader = DataLoader(data, batch_size=4)
    {call}

main()
"""


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("fit(net, loader, 3, place)", "fit(net, loader, accelerator, 3)"),
        ("fit(net, loader, epochs=3, device=place)", "fit(net, loader, accelerator, epochs=3)"),
        ("fit(net, loader, device=place, epochs=3)", "fit(net, loader, accelerator, epochs=3)"),
        ("fit(net, loader, device=place)", "fit(net, loader, accelerator)"),
        ("fit(net=net, loader=loader, device=place)", "fit(net=net, loader=loader, accelerator=accelerator)"),
        ("fit(device=place, net=net, loader=loader)", "fit(accelerator=accelerator, net=net, loader=loader)"),
        (
            "fit(\n        net,\n        loader,\n        epochs=3,\n        device=place,\n    )",
            "fit(\n        net,\n        loader,\n        accelerator,\n        epochs=3,\n    )",
        ),
    ],
)
def test_a_device_behind_other_defaults_goes_when_nobody_reads_it(call: str, expected: str) -> None:
    text = migrated(DEFAULTS.format(call=call))
    assert "def fit(net, loader, accelerator, epochs=2):" in text
    assert expected in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("steps.step()\n", "steps.step()\n            print(device)\n"),
        ("fit(net, loader, 3, place)", "fit(\n    net,\n    loader,\n    3,  # rounds\n    place,\n)"),
    ],
)
def test_a_device_that_is_read_or_told_of_stays(old: str, new: str) -> None:
    text = migrated(DEFAULTS.format(call="fit(net, loader, 3, place)").replace(old, new))
    assert 'device="cuda"' in text


RUNNER = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Runner:
    def __init__(self):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def fit(self, net, loader, steps):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x.to(self.device)), y.to(self.device))
            steps.zero_grad()
            loss.backward()
            steps.step()

    def run(self):
        loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,))), batch_size=8)
        net = nn.Linear(4, 3).to(self.device)
        steps = torch.optim.SGD(net.parameters(), lr=0.01)
        self.fit(net, loader, steps)


Runner().run()
"""


def test_a_method_that_asks_its_object_for_the_device_alone_keeps_its_object() -> None:
    text = migrated(RUNNER)
    assert "def fit(self, net, loader, steps, accelerator):" in text
    assert "self.fit(net, loader, steps, accelerator)" in text


@pytest.mark.parametrize(
    ("model", "device", "written"),
    [
        ("model: nn.Module", "device: torch.device", "accelerator: Accelerator"),
        ("model", "device", "accelerator"),
    ],
)
def test_a_parameter_has_a_type_where_the_device_had_one(model: str, device: str, written: str) -> None:
    text = SCRIPT.format(described="", reads="").replace("(model, device, ", f"({model}, {device}, ", 1)
    assert f"def train({model}, {written}, loader, optimizer):" in migrated(text)


def test_a_new_parameter_has_a_type_where_all_others_have_one() -> None:
    text = SCRIPT.format(described="", reads="").replace("x.to(device), y.to(device)", "x.cuda(), y.cuda()")
    text = text.replace("(model, device, loader", "(model, loader").replace("to(device)", "cuda()")
    typed = "model: nn.Module, loader: DataLoader, optimizer: object"
    written = migrated(text.replace("def train(model, loader, optimizer)", f"def train({typed})"))
    assert f"def train({typed}, accelerator: Accelerator):" in written
    assert "def train(model, loader, optimizer, accelerator):" in migrated(text)


def test_a_device_that_a_function_goes_on_reading_is_handed_over_as_it_was():
    source = """
        import torch
        from torch import nn
        from torch.utils.data import DataLoader

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = nn.Linear(3, 3).to(device)
        optimizer = torch.optim.Adam(model.parameters())


        def train(model, optimizer, loader, device):
            for x, y in loader:
                noise = torch.randn(3, device=device)
                loss = nn.functional.mse_loss(model(x.to(device)) + noise, y.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


        train(model, optimizer, DataLoader(rows, batch_size=4), device)
        """
    text = migrated(source)
    assert "def train(model, optimizer, loader, device):" in text
    assert "noise = torch.randn(3, device=device)" in text
