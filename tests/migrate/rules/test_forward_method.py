"""AM106: a method that makes the loss in the place of forward is registered as one."""

from __future__ import annotations

import pytest

from tests.migrate.rules.scripts import becomes, training
from tests.migrate.rules.verbs import ACCELERATE, migrated, notes, unchanged

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 2)
    def energy(self, x):
        return self.body(x).pow(2)
    def act(self, x):
        return self.body(x)
"""


def script(**parts: str) -> str:
    return training(functions=NET, **parts).replace("model = nn.Linear(3, 2)", "model = Net()")


def test_registers_the_method_right_after_prepare():
    becomes(
        script(loss="model.energy(x).mean()"),
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
        'accelerator.register_forward_method(model, "energy")',
    )


def test_calls_beside_the_loss_stay():
    after = migrated(script(loss="model.energy(x).mean()", inside="seen = model.energy(x)\ndone = model.act(x)"))
    for line in ("loss = model.energy(x).mean()", "seen = model.energy(x)", "done = model.act(x)"):
        assert line in after
    assert after.count("register_forward_method") == 1


def test_a_loss_that_is_summed_up_or_made_by_a_function_is_followed():
    summed = script(loss="0\n        first, _ = model.energy(x), 1\n        loss += first.mean()\n        loss /= 2")
    assert 'register_forward_method(model, "energy")' in migrated(summed)
    helper = NET + "\ndef cost(net, x):\n    return net.energy(x).mean()\n"
    made = training(functions=helper, loss="cost(model, x)").replace("model = nn.Linear(3, 2)", "model = Net()")
    assert 'register_forward_method(model, "energy")' in migrated(made)


def test_registers_each_method_once():
    after = migrated(script(loss="(model.energy(x) + model.act(x) + model.energy(y)).mean()"))
    assert after.count('register_forward_method(model, "energy")') == 1
    assert after.count('register_forward_method(model, "act")') == 1


def test_a_method_inherited_from_the_project_is_known():
    inherits = NET + "\nclass Deep(Net):\n    pass\n"
    source = training(functions=inherits, loss="model.energy(x).mean()").replace("= nn.Linear(3, 2).to", "= Deep().to")
    becomes(source, 'accelerator.register_forward_method(model, "energy")')


@pytest.mark.parametrize(("other", "known"), [("class Wide(Net):\n    pass", True), ("Wide = nn.Identity", False)])
def test_a_method_that_each_class_of_a_table_has_is_known(other: str, known: bool):
    table = f"{NET}\n{other}\nkinds = {{'net': Net, 'wide': Wide}}\n"
    source = training(functions=table, loss="model.energy(x).mean()")
    after = migrated(source.replace("model = nn.Linear(3, 2)", "model = kinds[sys.argv[1]]()"))
    assert ('register_forward_method(model, "energy")' in after) is known


@pytest.mark.parametrize("loss", ["model.body(x).mean()", "model.elsewhere(x).mean()"])
def test_what_may_be_a_part_stays_a_part(loss: str):
    assert "register_forward_method" not in migrated(script(loss=loss))
    assert "makes the loss" in unchanged(script(loss=loss), ACCELERATE)


def test_the_forward_beside_it_needs_nothing():
    assert "register_forward_method" not in migrated(script(loss="model.energy(model(x)).mean()"))


def test_leaves_the_loop_for_a_target_that_cannot():
    reason = unchanged(script(loss="model.energy(x).mean()"), ACCELERATE)
    assert "model.energy() makes the loss" in reason


def test_several_methods_are_registered_in_the_order_in_which_the_loss_calls_them():
    coder = NET.replace("act(self", "read(self").replace("energy(self", "write(self")
    source = script(inside="", loss="criterion(out, y)").replace(
        "        loss =", "        inner = model.write(x)\n        out = model.read(inner)\n        loss ="
    )
    text = migrated(source.replace(NET, coder))
    assert text.index('(model, "write")') < text.index('(model, "read")')


def test_a_method_that_calls_its_own_model_runs_the_forward():
    flow = NET.replace("act(self", "forward(self").replace(".body(x).pow(2)", "(x).pow(2)")
    source = script(
        loss="model.energy(x).mean()",
        after="for x, y in test_loader:\n    total += model.energy(x.to(device)).sum().item()",
    )
    text = migrated(source.replace(NET, flow))
    assert "total += accelerator.sum_for_metrics(model.energy(x).sum().item())" in text
    assert not [note for note in notes(source.replace(NET, flow)) if "self()" in note]


def test_a_module_that_trains_itself_is_said_to_whatever_its_layers_are():
    source = """
    import torch
    from layers import Conv
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Conv(3, 2), Conv(2, 1)
        def forward(self, x):
            h = self.first(x)
            return self.second(h)
        def fit(self, x, y):
            optimizer = torch.optim.Adam(self.parameters())
            for epoch in range(9):
                loss = nn.functional.mse_loss(self(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    Net().fit(torch.randn(8, 3), torch.randn(8, 1))
    """
    assert unchanged(source).startswith("the module trains itself from inside")


BATCHES_BY_HAND = """
import torch
from torch import nn
from torch.utils.data import DataLoader
{net}
loader = DataLoader(data, batch_size=8)
batches = iter(loader)
model = Net()
optimizer = torch.optim.Adam(model.parameters())
for step in range(30):
    try:
        x, y = next(batches)
    except StopIteration:
        batches = iter(loader)
        x, y = next(batches)
    loss = model.energy(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_registers_behind_the_prepare_that_takes_the_model():
    becomes(
        BATCHES_BY_HAND.format(net=NET),
        "model, optimizer = accelerator.prepare(model, optimizer)\n"
        'accelerator.register_forward_method(model, "energy")',
    )
