"""Where `prepare` stands: behind all that builds what it takes, also where a branch reads it from a file."""

from __future__ import annotations

import pytest

from tests.migrate.rules.verbs import migrated, unchanged

SCRIPT = """
import argparse
import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--resume")
args = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(rows, batch_size=4)
{built}
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    loss = model(x.to(device)).mean()
    loss.backward()
    optimizer.step()
{after}
"""
LOADED, BUILT = "model = torch.load(args.resume, map_location=device)", "model = torch.nn.Linear(4, 1)"
PREPARED = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nmodel, optimizer, loader = accelerator.prepare("


@pytest.mark.parametrize(
    "built",
    [
        f"if args.resume:\n    {LOADED}\nelse:\n    {BUILT}",
        f"if args.resume is None:\n    {BUILT}\nelse:\n    print(args.resume)\n    {LOADED}",
        f"if args.resume:\n    with open(args.resume) as file:\n        {LOADED}\nelse:\n    {BUILT}",
    ],
)
def test_a_model_that_one_branch_reads_and_the_other_builds(built: str) -> None:
    assert PREPARED in migrated(SCRIPT.format(built=built, after=""))


@pytest.mark.parametrize(
    "built",
    [
        f"if not args.resume:\n    {BUILT}",
        f"if args.resume:\n    {BUILT}\nelse:\n    print(args.resume)",
    ],
)
def test_a_model_that_a_branch_leaves_out(built: str) -> None:
    assert "`model` is built only under a condition" in unchanged(SCRIPT.format(built=built, after=""))


def test_a_model_that_is_read_back_when_all_is_done_is_not_built() -> None:
    back = 'torch.save(model, "best.pt")\nif args.resume:\n    model = torch.load("best.pt")\nprint(model)'
    assert PREPARED in migrated(SCRIPT.format(built=BUILT, after=back))


BRANCHES = """
import torch
from torch import nn
from torch.utils.data import DataLoader

def train(loader, model, optimizer):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

def test(loader, model):
    wrong = 0
    for x, y in loader:
        wrong += (model(x.cuda()) - y.cuda()).abs().sum().item()
    return wrong

loader, rest = DataLoader(rows(), batch_size=4), DataLoader(others(), batch_size=4)
model = nn.Linear(4, 1).cuda()
if mode == "train":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(loader, model, optimizer)
    print(test(rest, model))
else:
    {other}
"""


def test_the_branch_that_trains_prepares_where_the_others_only_test() -> None:
    text = migrated(BRANCHES.format(other="print(test(rest, model))"))
    assert "    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n    train(" in text
    assert "model = nn.Linear(4, 1).to(accelerator.device)\n" in text


def test_a_branch_that_trains_without_an_optimizer_of_its_own_is_left() -> None:
    unchanged(BRANCHES.format(other="train(loader, model, torch.optim.SGD(model.parameters(), lr=0.5))"))


SET_FROM_OUTSIDE = """
import torch
from torch import nn
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self):
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def fit(self, loader):
        for x, y in loader:
            loss = (self.model(x) - y).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()

trainer = Trainer()
trainer.scheduler = torch.optim.lr_scheduler.StepLR(trainer.optimizer, 10)
loader = DataLoader(rows(), batch_size=4)
for epoch in range(2):
    trainer.fit(loader)
"""


def test_what_a_trainer_has_from_outside_is_not_said_to_be_of_a_base_class() -> None:
    assert "`self.scheduler` is set from outside of Trainer" in unchanged(SET_FROM_OUTSIDE)
