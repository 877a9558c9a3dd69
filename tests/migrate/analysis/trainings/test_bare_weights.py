"""A weight that an optimizer steps and that belongs to no model: it is no model itself."""

from __future__ import annotations

import pytest

from tests.migrate.rules.verbs import ACCELERATE, migrated, noted, notes, unchanged

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

def train(left, right, loader):
    scale = {made}
    optimizer = torch.optim.Adam([{{"params": [*left.parameters(), *right.parameters(), scale]}}])
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = (left(x) * scale.exp() - right(y)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

train(nn.Linear(2, 2).to(device), nn.Linear(2, 2).to(device), DataLoader(data, batch_size=4))
"""


@pytest.mark.parametrize(
    "made", ["nn.Parameter(torch.ones((), device=device))", "nn.parameter.Parameter(torch.ones(2, device=device))"]
)
def test_is_not_prepared_and_is_said_to_be_averaged_by_its_optimizer(made: str) -> None:
    script = SCRIPT.format(made=made)
    assert "left, right, optimizer, loader = accelerator.prepare(left, right, optimizer, loader)" in migrated(script)
    assert noted(script, "AM102").startswith("`scale`: trained and of no model")
    assert not any("past the model's forward" in note for note in notes(script))


def test_would_be_averaged_by_nobody_in_accelerate() -> None:
    reason = unchanged(SCRIPT.format(made="nn.Parameter(torch.ones((), device=device))"), ACCELERATE)
    assert "the optimizer changes `scale`, which belongs to no model" in reason


def test_a_module_of_weights_is_prepared_as_any_model() -> None:
    script = SCRIPT.format(made="nn.ParameterList([torch.ones(2)]).to(device)").replace(
        ", scale]", ", *scale.parameters()]"
    )
    script = script.replace("scale.exp()", "scale(x)")
    assert "left, right, scale, optimizer, loader" in migrated(script).replace(
        "scale, left, right", "left, right, scale"
    )
    assert not any("of no model" in note for note in notes(script))


def test_made_on_the_cpu_it_keeps_a_script_there_that_moves_nothing() -> None:
    script = SCRIPT.format(made="nn.Parameter(torch.ones(2))").replace(".to(device)", "")
    lines = [line for line in script.splitlines() if not line.startswith("device =") and line.strip() != "x, y = x, y"]
    assert "accelerator = Accelerator(cpu=True)" in migrated("\n".join([*lines, ""]))
