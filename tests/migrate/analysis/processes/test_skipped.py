"""A class that prepares where it trains: what a run may come to without having trained meets loaders that are not prepared."""

from __future__ import annotations

import pytest

from tests.migrate.rules.scripts import codes
from tests.migrate.rules.verbs import migrated, noted, unchanged

SOLVER = """
    import sys
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    class Solver:
        def __init__(self):
            self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            self.loader = DataLoader(data(), batch_size=4)
            self.held = DataLoader(rest(), batch_size=4)
            self.model = nn.Linear(2, 2).to(self.device)

        def test(self):
            right = 0
            for x, y in self.held:
                x, y = x.to(self.device), y.to(self.device)
                with torch.no_grad():
                    right += (self.model(x).argmax(1) == y).sum().item()
            print(right / len(self.held.dataset))

        def train(self):
            optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            for x, y in self.loader:
                loss = nn.functional.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            self.test()

    def again(solver):
        solver.test()

    solver = Solver()
    {}
    """
TRAINS = "if sys.argv[1:]:\n        solver.train()\n    "


@pytest.mark.parametrize(
    "run",
    [
        "solver.test()\n    solver.train()",
        TRAINS + "else:\n        solver.test()",
        TRAINS + "solver.test()",
        "again(solver)\n    solver.train()",
        "try:\n        solver.train()\n    finally:\n        solver.test()",
    ],
)
def test_an_evaluation_that_may_run_without_training_needs_no_prepared_loader(run: str) -> None:
    assert "for x, y in self.accelerator.whole_batches(self.held):" in migrated(SOLVER.format(run))
    fed = SOLVER.replace("right +=", "right = right * 2 +").format(run)
    assert "`right` goes on from batch to batch" in noted(fed, "AM402")


@pytest.mark.parametrize(
    "run", ["solver.train()", "solver.train()\n    solver.test()", "solver.train()\n    again(solver)"]
)
def test_an_evaluation_behind_the_training_is_shared_by_the_processes(run: str) -> None:
    assert "AM402" not in codes(SOLVER.format(run))


def test_leaves_a_class_that_evaluates_its_training_data_before_it_trains() -> None:
    unchanged(SOLVER.replace("self.held", "self.loader").format("solver.test()\n    solver.train()"))
