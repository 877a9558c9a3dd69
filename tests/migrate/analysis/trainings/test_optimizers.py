"""Optimizers that step what belongs to no model."""

from __future__ import annotations

from tests.migrate.rules.scripts import training
from tests.migrate.rules.verbs import ACCELERATE, migrated, unchanged

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader

loader = DataLoader(rows(), batch_size=4)
model = nn.Linear(4, 1)
scale = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scale_optimizer = torch.optim.SGD([scale], lr=0.1)
for x, y in loader:
    loss = (model(x) - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scale_loss = (scale.exp() * loss.detach() - scale).mean()
    scale_optimizer.zero_grad()
    scale_loss.backward()
    scale_optimizer.step()
"""


def test_a_tensor_that_the_script_makes_is_trained_by_a_prepared_optimizer() -> None:
    assert "prepare(model, optimizer, scale_optimizer, loader)" in migrated(SCRIPT).replace("\n    ", "").replace(
        "\n)", ")"
    )


def test_accelerate_averages_no_such_tensor() -> None:
    assert "belongs to no model" in unchanged(SCRIPT, ACCELERATE)


def test_a_tensor_that_may_differ_from_process_to_process() -> None:
    for drawn in ("torch.randn(1, requires_grad=True)", "first(loader)"):
        assert "belongs to no model" in unchanged(SCRIPT.replace("torch.zeros(1, requires_grad=True)", drawn))


def test_a_tensor_without_a_model_beside_it() -> None:
    alone = (
        SCRIPT.partition("    loss = ")[0]
        + "    (scale * x - y).pow(2).mean().backward()\n    scale_optimizer.step()\n"
    )
    unchanged(alone)


def test_a_weight_of_a_model_under_a_name_of_its_own_is_no_weight_of_nothing():
    source = training(ready="weight = model.weight\noptimizer = torch.optim.SGD([weight], lr=0.1)")
    assert "accelerator.prepare(model, optimizer, loader)" in migrated(source)
