"""Small scripts, read by the analysis: what it found, in words."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

from accel_migrate.analysis.trainings.script import read
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.program import Program
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.source import Source

# A model, its optimizer and its loader, at module level.
BUILT = """
import torch
from torch import nn
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(data, batch_size=4)
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
STEP = """
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
"""
TRAINED = f"""
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device){STEP}
"""


def modules(*texts: str) -> list[Module]:
    """The first text is train.py; the others name themselves by a first line `# name.py`."""
    found = []
    for number, text in enumerate(texts):
        text = dedent(text).lstrip("\n")
        name = text.splitlines()[0].removeprefix("# ") if number else "train.py"
        found.append(Module(Source.from_bytes(Path(name), text.encode())))
    return found


def script(*texts: str, prints_once: bool = False, for_accelerate: bool = False) -> Script:
    return read(modules(*texts), prints_once=prints_once, for_accelerate=for_accelerate)


def training(*texts: str, prints_once: bool = False, for_accelerate: bool = False) -> Training:
    """The one training of the files."""
    found = script(*texts, prints_once=prints_once, for_accelerate=for_accelerate)
    assert not found.refusals, found.refusals
    (only,) = found.trainings
    return only


def refusal(*texts: str) -> str:
    """Why the one training of the files is left alone."""
    found = script(*texts)
    assert not found.trainings, "it was not refused"
    (only,) = found.refusals
    return only.reason


def prepared(*texts: str) -> list[str]:
    return [built.text for built in training(*texts).prepared]


def dropped(*texts: str) -> list[str]:
    """The moves that go, as they are written."""
    return [move.module.source.code(move.call) for move in training(*texts).dropped]


def kept(*texts: str) -> list[str]:
    return [move.module.source.code(move.call) for move in training(*texts).kept]


def role(text: str, name: str) -> Role:
    """The role of a name, anywhere in the file."""
    (module,) = modules(text)
    roles = Roles(Program([module]))
    found = Role.NONE
    for variable in roles.known:
        if variable.name == name:
            found |= roles.of(variable)
    return found


def variable(module: Module, name: str) -> Variable:
    """The variable that a name means where it is first read."""
    node = next(n for n in ast.walk(module.tree) if isinstance(n, ast.Name) and n.id == name)
    found = module.variable(node)
    assert found is not None
    return found
