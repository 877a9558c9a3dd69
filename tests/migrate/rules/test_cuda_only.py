"""AM204: moves to a CUDA GPU that stay, since no Accelerator comes there."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.plan import Status
from accel_migrate.source import Source

from tests.migrate.rules.scripts import training

TRAIN = training(functions="import tools\n", loss="criterion(model(x), y) + tools.penalty(x)")


def told(tools: str, train: str = TRAIN) -> list[str]:
    files = {"train.py": train, "tools.py": tools}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()])
    return [note.message for result in results for note in result.notes if note.code == "AM204"]


@pytest.mark.parametrize("move", [".cuda()", ".cuda(non_blocking=True)", ".to('cuda')"])
def test_a_move_in_a_file_that_is_not_changed(move: str):
    (message,) = told(f"import torch\ndef penalty(x):\n    return (x * torch.ones(3){move}).mean()\n")
    assert "(tools.py:3)" in message and "accel launch --cpu" in message


@pytest.mark.parametrize(
    "body",
    [
        "return (x * torch.ones(3).to(x.device)).mean()",
        "return (x * torch.ones(3)).mean()",
        "return (x.cuda() if torch.cuda.is_available() else x).mean()",
    ],
)
def test_nothing_is_said_of_what_follows_or_asks_first(body: str):
    assert told(f"import torch\ndef penalty(x):\n    {body}\n") == []


def test_nothing_is_said_of_a_function_that_does_not_run():
    assert told("def penalty(x):\n    return x.mean()\ndef show(x):\n    return x.cuda()\n") == []


CHOSEN = 'import torch\nwhere = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
SCRIPT = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{imported}


class Net(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.layer, self.device = nn.Linear(4, 4), device

    def forward(self, x):
        return self.layer(x) * torch.ones(4, device=self.device)


rows = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8)
net = {made}
net.to({named})
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for (x,) in rows:
    loss = net(x.to({named})).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print({named})
"""


@pytest.mark.parametrize(
    ("imported", "named"), [("import settings", "settings.where"), ("from settings import where", "where")]
)
def test_says_that_a_device_of_another_file_is_handed_on_as_it_is(imported: str, named: str) -> None:
    always = 'import torch\nwhere = torch.device("cuda")\n'
    assert f"`{named}` (train.py:17) is still the script's own choice" in _said(
        imported, named, f"Net({named})", always
    )
    assert not _said(imported, named, "nn.Linear(4, 4)", always)


@pytest.mark.parametrize(
    "chosen",
    [
        'where = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n',
        'if torch.cuda.is_available():\n    where = "cuda"\nelse:\n    where = "cpu"\n',
        'has_gpu = torch.cuda.is_available()\nwhere = "cuda" if has_gpu else "cpu"\n',
    ],
)
def test_a_device_that_is_cuda_if_there_is_cuda_follows_the_launcher(chosen: str) -> None:
    assert not _said("from settings import where", "where", "Net(where)", f"import torch\n{chosen}")


def test_a_device_in_whose_place_the_accelerator_is_handed_over_is_not_handed_on() -> None:
    script = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from settings import where


def train(net, rows, optimizer, device):
    for (x,) in rows:
        loss = net(x.to(device)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    rows = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8)
    net = nn.Linear(4, 4).to(where)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    train(net, rows, optimizer, where)
    print(where)
"""
    result, _ = migrate(
        [Source.from_bytes(Path(n), text.encode()) for n, text in {"train.py": script, "settings.py": CHOSEN}.items()]
    )
    assert "def train(net, rows, optimizer, accelerator)" in result.after.decode()
    assert not [note for note in result.notes if note.code == "AM204"]


def _said(imported: str, named: str, made: str, chosen: str) -> str:
    files = {"train.py": SCRIPT.format(imported=imported, named=named, made=made), "settings.py": chosen}
    result, _ = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()])
    assert result.status is Status.MIGRATED, result.reason
    return "".join(note.message for note in result.notes if note.code == "AM204")


def test_nothing_is_said_of_a_class_of_another_script_that_evaluates() -> None:
    train = TRAIN.replace("for epoch in range(2):", "model.eval()\nfor epoch in range(2):")
    tools = "import torch\ndef penalty(x):\n    return x.mean()\n{named}"
    shuffled = "class Queue(torch.nn.Module):\n    def forward(self, x):\n        return x[torch.randperm(4).cuda()]\n"
    assert told(tools.format(named=shuffled), train) == []
    assert told(tools.format(named=f"{shuffled}queue = Queue()\n"), train) != []


@pytest.mark.parametrize(
    ("named", "is_told"),
    [
        ("torch.DoubleTensor", False),
        ("'torch.DoubleTensor'", False),
        ("'torch.cuda.FloatTensor'", True),
        ("kind", True),
    ],
)
def test_a_default_type_of_the_cpu_is_no_device(named: str, is_told: bool):
    train = TRAIN.replace("device = ", f"torch.set_default_tensor_type({named})\ndevice = ", 1)
    said = told("def penalty(x):\n    return x.mean()\n", f"from elsewhere import kind\n{train}")
    assert any("default tensor type" in each for each in said) is is_told
