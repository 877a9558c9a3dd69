"""A small training script with room for the lines that a test is about, and what becomes of them."""

from __future__ import annotations

from textwrap import dedent, indent

from accel_migrate.plan import Status
from accel_migrate.settings import DEFAULTS, Settings

from tests.migrate.rules.verbs import _migrated

_SCRIPT = """
import copy, csv, json, os, shutil, sys
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter
from torchvision.utils import save_image
from tqdm import tqdm
import wandb

{functions}
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(40, 3), torch.randint(0, 2, (40,)))
loader = DataLoader(data, batch_size=4, shuffle=True)
test_loader = DataLoader(data, batch_size=4)
model = nn.Linear(3, 2).to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{ready}
for epoch in range(2):
    total = 0.0
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
{inside}
{after}
"""


def training(
    *, functions: str = "", ready: str = "", loss: str = "criterion(model(x), y)", inside: str = "", after: str = ""
) -> str:
    """A script with `functions` at its top, `ready` before the loop, `inside` each batch and `after` each epoch."""
    return _SCRIPT.format(
        functions=dedent(functions),
        ready=dedent(ready),
        loss=loss,
        inside=indent(dedent(inside), " " * 8),
        after=indent(dedent(after), " " * 4),
    )


def becomes(source: str, expected: str, settings: Settings = DEFAULTS) -> None:
    """The lines stand in the migrated script, at whatever indentation."""
    result = _migrated(source, settings)
    assert result.status is Status.MIGRATED, result.reason
    text = result.after.decode()
    assert _flat(dedent(expected)) in _flat(text), text


def stays(source: str, line: str, settings: Settings = DEFAULTS) -> None:
    """The script is migrated, and this line of it is as it was."""
    becomes(source, line, settings)


def codes(source: str, settings: Settings = DEFAULTS) -> set[str]:
    """The codes of all that is changed or noted."""
    result = _migrated(source, settings)
    return {change.code for change in result.applied} | {note.code for note in result.notes}


def _flat(text: str) -> str:
    """Each line without its outer indentation, joined; a guard keeps its body one level in."""
    lines = [line for line in text.split("\n") if line.strip()]
    return "\n".join(line.strip() for line in lines)
