"""AM971: a function whose parameters change is called by the new ones."""

from __future__ import annotations

import pytest

from tests.migrate.check.reading import said
from tests.migrate.rules.verbs import migrated

BEFORE = """
class Keeper:
    def save(self, loss, model):
        write(loss, model)

class Logger:
    def __init__(self):
        self.keeper = Keeper()
        self.keepers = [self.keeper]

logger = Logger()
{call}
"""


def after(call: str) -> str:
    return BEFORE.format(call=call).replace("save(self, loss, model)", "save(self, loss, model, accelerator)", 1)


@pytest.mark.parametrize(
    "call",
    [
        "logger.keeper.save(loss, model)",
        "logger.keepers[0].save(loss, model=model)",
        "found(logger).save(loss, model)",
        "Keeper.save(logger.keeper, loss, model)",
    ],
)
def test_a_call_without_what_a_method_takes_now(call: str) -> None:
    assert said("AM971", BEFORE.format(call=call), after(call))
    handed = call.replace("model)", "model, accelerator=accelerator)")
    assert not said("AM971", BEFORE.format(call=call), after(handed))


@pytest.mark.parametrize("owner", ["logger.keeper", "given"])
def test_a_call_that_would_hand_over_something_else_in_its_place(owner: str) -> None:
    call = f"def train(given):\n    {owner}.save(loss, model, optimizer)"
    before = BEFORE.format(call=call).replace("save(self, loss, model)", "save(self, loss, model, optimizer=None)")
    result = before.replace("optimizer=None)", "accelerator, optimizer=None)")
    assert said("AM971", before, result)
    assert not said("AM971", before, result.replace("model, optimizer)", "model, accelerator, optimizer)"))
    assert not said("AM971", before, before.replace("write(loss", "keep(loss"))


@pytest.mark.parametrize(
    "call",
    [
        "picture.save(path)",
        "picture.save(*parts)",
        "import torch\ntorch.save(loss, model)",
        "accelerator.save(loss, model)",
        "class Other:\n    def save(self, loss, model): ...\nOther().save(loss, model)",
    ],
)
def test_a_call_of_something_else_by_that_name(call: str) -> None:
    assert not said("AM971", BEFORE.format(call=call), after(call))


def test_a_method_that_is_reached_by_an_attribute_of_an_attribute() -> None:
    script = """
    import torch
    from torch import nn

    class Keeper:
        def save(self, loss, model):
            torch.save(model.state_dict(), "best.pt")
        def __call__(self, loss, model):
            self.save(loss, model)

    class Logger:
        def __init__(self):
            self.keeper = Keeper()
        def push(self, loss, model):
            self.keeper(loss, model)

    class Trainer:
        def __init__(self):
            self.logger = Logger()
            self.rows = torch.utils.data.DataLoader(data(), batch_size=4)
            self.model = nn.Linear(4, 1)
            self.optimizer = torch.optim.Adam(self.model.parameters())
        def fit(self):
            for x, y in self.rows:
                loss = nn.functional.mse_loss(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.logger.push(loss.item(), self.model)
            self.logger.keeper.save(loss.item(), self.model)

    Trainer().fit()
    """
    result = migrated(script)
    assert "self.logger.push(loss.item(), self.model, self.accelerator)" in result
    assert "self.logger.keeper.save(loss.item(), self.model, self.accelerator)" in result


def test_a_function_that_is_defined_again_with_other_parameters() -> None:
    twice = """
def measure(model, device):
    write(model)

def measure(model, loader, device{more}):
    write(model, loader)

measure(model, loader, device)
"""
    assert not said("AM971", twice.format(more=""), twice.format(more="") + "write(1)\n")
    assert said("AM971", twice.format(more=""), twice.format(more=", accelerator"))
