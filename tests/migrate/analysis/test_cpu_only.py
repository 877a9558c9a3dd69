"""A script without devices stays on the CPU, unless what it trains comes from where a device may be."""

from __future__ import annotations

from tests.migrate.rules.verbs import migrated, unchanged

TRAINER = """
import torch

class Perturbation:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(self, x, y):
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
"""


def test_a_model_from_outside_is_not_sent_to_the_cpu() -> None:
    assert "`model` is handed to __init__() from outside the files given" in unchanged(TRAINER)


def test_a_model_that_is_built_here_stays_on_the_cpu() -> None:
    used = "\nPerturbation(torch.nn.Linear(4, 2)).step(torch.ones(2, 4), torch.zeros(2).long())\n"
    assert "Accelerator(cpu=True)" in migrated(TRAINER + used)
