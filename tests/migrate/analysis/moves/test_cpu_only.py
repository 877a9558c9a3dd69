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


SAMPLED = """
import torch
from torch.autograd import Variable
from torch.utils.data import DataLoader

loader = DataLoader(data, batch_size=4)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = Variable(x), Variable(y)
    loss = torch.nn.functional.cross_entropy(model(x.view(4, -1)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def shown(index):
    {}
    return model(image)
"""


def test_a_model_that_is_run_on_an_item_of_the_data_stays_with_it() -> None:
    assert "Accelerator(cpu=True)" in migrated(SAMPLED.format("image, label = data[index]"))
    assert "Accelerator()" in migrated(SAMPLED.format("image = next(iter(loader))[0]"))
