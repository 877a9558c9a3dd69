"""Where a training is set up, when a base class has a part in it."""

from __future__ import annotations

from tests.migrate.analysis.reading import dropped, prepared, script, training

BASE = """
# base.py
class Base:
    def __init__(self, model, optimizer, device):
        self.device = device
        self.model = model.to(device)
        self.optimizer = optimizer

    def fit(self):
        self.epoch()

    def epoch(self):
        raise NotImplementedError
"""
OWN = """
# own.py
from torch import nn
from base import Base


class Own(Base):
    def __init__(self, model, optimizer, device, loader):
        super().__init__(model, optimizer, device)
        self.loader = loader

    def epoch(self):
        for x, y in self.loader:
            x, y = x.to(self.device), y.to(self.device)
            loss = nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
"""
SCRIPT = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader
from own import Own

device = {device}
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
Own(model, optimizer, device, DataLoader(data, batch_size=4)).fit()
"""
PLAIN = SCRIPT.format(device='torch.device("cuda" if torch.cuda.is_available() else "cpu")')


def refused(*texts: str) -> str:
    """The reason, which is told in each of the files."""
    found = script(*texts)
    assert not found.trainings
    (reason,) = {each.reason for each in found.refusals}
    return reason


def test_what_a_base_class_sets_is_prepared_where_the_class_has_it_all() -> None:
    assert prepared(PLAIN, OWN, BASE) == ["self.model", "self.optimizer", "self.loader"]
    found = training(PLAIN, OWN, BASE)
    assert found.place.module.source.path.name == "own.py"
    assert {scope.node.name for scope in found.reach.family} == {"Base", "Own"}  # type: ignore[attr-defined]


def test_a_class_without_an_init_is_set_up_by_its_base_class() -> None:
    base = BASE.replace("optimizer, device):", "optimizer, device, loader):").replace(
        "self.optimizer = optimizer", "self.optimizer = optimizer\n        self.loader = loader"
    )
    start = OWN.index("    def __init__")
    own = OWN[:start] + OWN[OWN.index("    def epoch") :]
    assert training(PLAIN, own, base).place.module.source.path.name == "base.py"


def test_a_base_class_of_several_classes_is_not_changed_for_one() -> None:
    other = BASE + "\n\nclass Other(Base):\n    pass\n"
    assert "which other classes are derived from too" in refused(PLAIN, OWN, other)


def test_a_base_class_that_objects_are_made_of() -> None:
    assert "which other classes are derived from too" in refused(
        PLAIN + "import base\nbase.Base(model, optimizer, device)\n", OWN, BASE
    )


def test_a_device_that_a_base_class_is_given_must_be_what_the_accelerator_takes() -> None:
    for device in ('torch.device("cpu")', "torch.device(sys.argv[1])", "sys.argv[1]", '"cuda:1"'):
        assert "would not be told of it" in refused(SCRIPT.format(device=device), OWN, BASE)


def test_a_model_that_the_script_moves_and_a_trainer_of_another_file_prepares() -> None:
    whole = OWN.replace("from base import Base\n", "").replace("Own(Base)", "Own")
    whole = whole.replace(
        "super().__init__(model, optimizer, device)",
        "self.model = model\n        self.optimizer = optimizer\n        self.device = device",
    )
    moved = PLAIN.replace("nn.Linear(4, 2)", "nn.Linear(4, 2).to(device)")
    batches = ["x.to(self.device)", "y.to(self.device)"]
    assert dropped(moved, whole) == [*batches, "nn.Linear(4, 2).to(device)"]
    for needs in ("self.average = deepcopy(self.model)", "for p in self.model.parameters():\n            p.normal_()"):
        early = whole.replace("self.device = device", f"self.device = device\n        {needs}")
        assert dropped(moved, early) == batches, needs
