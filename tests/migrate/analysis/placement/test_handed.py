"""Loaders that only the functions have that train: prepared there, if nothing else comes the same way."""

from __future__ import annotations

from tests.migrate.rules.verbs import migrated, unchanged

TRAINER = """
import torch
from torch import nn
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self):
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def fit(self, loader, test_loader=None):
        for epoch in range(3):
            self.train_epoch(loader)

    def train_epoch(self, loader):
        for x, y in loader:
            loss = (self.model(x) - y).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

trainer = Trainer()
loader = DataLoader(rows(), batch_size=4)
{calls}
"""
PREPARED = "loader = self.accelerator.prepare(loader)\n"


def trainer(calls: str) -> str:
    return TRAINER.format(calls=calls)


def test_a_loader_is_prepared_in_the_outermost_method_that_is_handed_it() -> None:
    text = migrated(trainer("for fold in range(2):\n    trainer.fit(loader)"))
    assert f"def fit(self, loader, test_loader=None):\n        {PREPARED}" in text
    assert text.count("prepare(loader)") == 1


def test_a_loader_is_prepared_further_in_where_another_way_leads_there() -> None:
    text = migrated(trainer("for fold in range(2):\n    trainer.fit(loader)\ntrainer.train_epoch(DataLoader(more()))"))
    assert f"def train_epoch(self, loader):\n        {PREPARED}" in text
    assert text.count("prepare(loader)") == 1


def test_what_nobody_is_seen_to_hand_over_is_prepared_all_the_same() -> None:
    assert PREPARED in migrated(trainer("").replace("loader, test_loader=None", "loader: DataLoader"))


def test_a_function_that_is_handed_a_new_loader_in_each_epoch_prepares_it() -> None:
    function = """
        import torch
        from torch import nn

        def train(loader, model, optimizer):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(2):
            train({}, model, optimizer)
        """
    text = migrated(function.format("torch.utils.data.DataLoader(rows(epoch))"))
    assert "def train(loader, model, optimizer):\n    loader = accelerator.prepare(loader)\n" in text
    assert "again in each round of a loop" in unchanged(function.format("parts['train']"))


def test_a_function_that_trains_on_one_loader_and_evaluates_on_another_shards_neither() -> None:
    both = trainer("for fold in range(2):\n    trainer.run(loader, True)\n    trainer.run(other, False)").replace(
        "    def train_epoch",
        "    def run(self, loader, trains):\n"
        "        total = 0.0\n"
        "        for x, y in loader:\n"
        "            loss = (self.model(x) - y).pow(2).mean()\n"
        "            if trains:\n"
        "                self.optimizer.zero_grad()\n"
        "                loss.backward()\n"
        "                self.optimizer.step()\n"
        "            total += loss.item()\n"
        "        print(total)\n\n"
        "    def train_epoch",
    )
    built = both.replace("loader = Data", "other = DataLoader(rows(), batch_size=2)\nloader = Data")
    assert "no place has all" in unchanged(built)
