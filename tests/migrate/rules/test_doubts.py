"""AM901: trainings whose gradients nobody would average are left, with the reason and the next step."""

from __future__ import annotations

from textwrap import dedent

from accel_migrate.settings import DEFAULTS

from tests.migrate.rules.scripts import becomes, stays, training
from tests.migrate.rules.verbs import ACCELERATE, _migrated, unchanged


def test_leaves_an_optimizer_over_a_tensor_of_no_model():
    source = training(ready="optimizer = torch.optim.SGD([picture], lr=0.1)").replace(
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", "picture = torch.rand(3)\n"
    )
    assert "`picture`" in unchanged(source)


def test_leaves_a_second_optimizer_over_weights_of_nobody_in_sight():
    ready = "from somewhere import Weigher\nweigher = Weigher()\nouter = torch.optim.SGD({}, lr=0.1)"
    assert "`outer` updates" in unchanged(training(ready=ready.format("weigher.params()"), inside="outer.step()"))
    becomes(training(ready=ready.format("model.parameters()"), inside="outer.step()"), "outer.step()")


def test_leaves_a_wrapper_that_steps_from_within():
    wrapper = (
        "class Warm:\n    def __init__(self, inner):\n        self.inner = inner\n"
        "    def step(self):\n        self.inner.step()\n    def zero_grad(self):\n        self.inner.zero_grad()\n"
    )
    assert "Warm" in unchanged(training(functions=wrapper, ready="optimizer = Warm(optimizer)"))


def test_leaves_a_loss_that_a_method_makes_past_a_wrapper():
    assert "model.energy()" in unchanged(training(loss="model.energy(x).mean()"), ACCELERATE)
    stays(training(loss="model.energy(x).mean()"), "loss = model.energy(x).mean()")


def test_migrates_a_method_beside_the_forward():
    source = training(loss="model.score(model(x), y)")
    becomes(source, "loss = accelerator.unwrap_model(model).score(model(x), y)", ACCELERATE)
    stays(source, "loss = model.score(model(x), y)")


def test_leaves_a_module_that_trains_itself():
    source = """
    import torch
    class Layer(torch.nn.Module):
        def fit(self, x):
            loss = self.forward(x).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
    """
    assert "trains itself" in unchanged(source)


def test_leaves_a_function_whose_caller_is_not_given():
    source = """
    import torch
    def train_one_epoch(model, optimizer, loader):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """
    assert "train_one_epoch()" in unchanged(source)


def test_leaves_a_gradient_that_nobody_uses():
    assert "no optimizer is seen to step" in unchanged(
        "import torch\nx = torch.ones(2, requires_grad=True)\nx.sum().backward()\n"
    )


def test_prepares_a_model_whose_weights_are_changed_by_hand():
    source = """
    import torch
    net = torch.nn.Linear(2, 1)
    for step in range(3):
        net.zero_grad()
        loss = net(torch.ones(4, 2)).mean()
        loss.backward()
        for p in net.parameters():
            p.data.add_(p.grad, alpha=-0.1)
    """
    becomes(source, "net = accelerator.prepare(net)")


def test_prepares_an_optimizer_where_a_condition_builds_it():
    source = training(ready="if fast:\n    optimizer = torch.optim.Adam(model.parameters())").replace(
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", ""
    )
    becomes(source, "optimizer = torch.optim.Adam(model.parameters())\noptimizer = accelerator.prepare(optimizer)")


GIVEN_BACK = """
    import torch
    from torch.utils.data import DataLoader


    def restored(path, model=None, optimizer=None):
        if model is not None:
            model.load_state_dict(torch.load(path))
        return model, optimizer


    def main(resume):
        loader = DataLoader(build(), batch_size=4)
        net = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        if resume is not None:
            net, optimizer = restored(net, resume, optimizer=optimizer)
        else:
            restored("first.pt", net)
        for x in loader:
            loss = net(x).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""


def test_an_optimizer_that_a_call_gives_back_was_not_built_over_its_other_arguments():
    result = _migrated(GIVEN_BACK, DEFAULTS)
    assert "updates `resume`" not in result.reason


ALONE = """
    def train(loader, model, optimizer):
        for x, y in loader:
            loss = (model(x) - y).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""


def test_a_caller_that_no_import_leads_from_is_said_to_be_out_of_sight():
    reason = unchanged("import torch\n" + dedent(ALONE))
    assert "the caller of train()" in reason
    assert "let it import this one by a path" in reason
