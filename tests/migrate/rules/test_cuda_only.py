"""AM204: moves to a CUDA GPU that stay, since no Accelerator comes there."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.pipeline import migrate
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
