"""A model that runs, or is copied, before it is prepared keeps its move; one that is only set up loses it."""

from __future__ import annotations

import pytest

from tests.migrate.analysis.reading import BUILT, TRAINED, dropped, kept

MOVED = "model = nn.Linear(4, 2).to(device)"
MOVE = "nn.Linear(4, 2).to(device)"

COPIED_WHEN_MADE = """
class Average:
    def __init__(self, net):
        self.kept = [p.clone() for p in net.parameters()]
average = Average(model)
"""
COPIED_BY_A_METHOD = """
class Average:
    def take(self, net):
        for name, p in net.named_parameters():
            self.kept[name] = p.data.clone()
average = Average()
average.take(model)
"""
FOLLOWED = """
def follow(slow, fast, rate):
    given = dict(fast.named_parameters())
    for name, p in slow.named_parameters():
        p.data.mul_(rate).add_(given[name].data, alpha=1 - rate)
follow(slow, model, 0)
"""


def with_early(lines: str) -> str:
    return BUILT.replace(MOVED, f"{MOVED}\n{lines}") + TRAINED


@pytest.mark.parametrize(
    "early",
    [
        "print(model(sample))",
        "shape = model.forward(sample).shape",
        "first = model[0](sample)",
        "size = model.encoder(sample).numel()",
        "def show():\n    print(model(sample))\nshow()",
        "def outer():\n    inner()\ndef inner():\n    return model(sample)\nouter()",
        "def show(net):\n    print(net(sample))\nshow(model)",
        "def show(net):\n    print(net(sample))\nif wanted:\n    show(model)\n    raise SystemExit",
        COPIED_WHEN_MADE,
        COPIED_BY_A_METHOD,
        FOLLOWED,
        FOLLOWED.replace("dict(fast.named_parameters())", "[*fast.parameters()]"),
        "for p, q in zip(slow.parameters(), model.parameters()):\n    p.data.lerp_(q.data, 0.5)",
        "weights = {name: value.clone() for name, value in model.state_dict().items()}",
        "average = copy.deepcopy(model)",
        "summary(model, (4,))",
        "summary(model.cuda(), (4,))",
        "model.eval()(sample)",
        "same = model",
        "parts = {'net': model}",
        "where = next(model.parameters()).device",
        "hook = functools.partial(run, model)",
    ],
)
def test_what_runs_or_copies_the_model_needs_its_move(early: str) -> None:
    assert MOVE in kept(with_early(early))


@pytest.mark.parametrize(
    "early",
    [
        "print(model)",
        "count = sum(p.numel() for p in model.parameters())",
        "model.train()",
        "model.train().requires_grad_(True)",
        "model = nn.DataParallel(model.cuda())",
        "model.load_state_dict(torch.load('m.pt'))",
        "for p in model.parameters():\n    p.requires_grad = False",
        "nn.init.zeros_(model.weight)",
        "def freeze(net):\n    for p in net.parameters():\n        p.requires_grad = False\nfreeze(model)",
        "def load(net):\n    net.load_state_dict(torch.load('m.pt'))\nload(model)",
        "model = torch.compile(model)",
        "model = nn.DataParallel(model)",
        "def show():\n    print(model(sample))",
        "weights = [p for p in model.parameters() if p.requires_grad]\nother = torch.optim.SGD(weights, lr=0.1)",
        "scheduler = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(model.parameters(), 1), 1)",
    ],
)
def test_what_only_sets_the_model_up_does_not(early: str) -> None:
    assert MOVE in dropped(with_early(early))


def test_a_sample_after_training_needs_no_move() -> None:
    assert MOVE in dropped(BUILT + TRAINED + "print(model(sample))\n")


def test_what_stands_in_the_branch_before_prepare_runs_before_it() -> None:
    """The branch changes the model, so `prepare` comes right after it."""
    shown = """
def show(net):
    print(net(torch.ones(4, device=device)))
if wanted:
    restore(model)
    show(model)
    raise SystemExit
"""
    assert MOVE in kept(BUILT + shown + TRAINED)


def test_a_helper_of_another_file_is_followed() -> None:
    helper = "# helper.py\ndef show(net):\n    print(net(1))\n"
    text = "from helper import show\n" + with_early("show(model)")
    assert MOVE in kept(text, helper)
    assert MOVE in dropped(text, helper.replace("net(1)", "net"))


def test_a_caller_that_runs_its_model_first_keeps_the_move() -> None:
    imports = BUILT.split("\n\n")[0]
    fit = (
        "def fit(model):\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n    loader = DataLoader(data)\n"
    )
    fit += TRAINED.replace("\n", "\n    ").replace("x, y = x.to(device), y.to(device)", "pass")
    main = "\ndef main():\n    model = nn.Linear(4, 2).cuda()\n    {}\n    fit(model)\nmain()\n"
    assert "nn.Linear(4, 2).cuda()" in kept(imports + "\n" + fit + main.format("print(model(sample))"))
    assert "nn.Linear(4, 2).cuda()" in dropped(imports + "\n" + fit + main.format("print(model)"))


def test_a_trainer_that_runs_its_model_while_it_is_built_keeps_the_move() -> None:
    trainer = """
        import torch
        from torch import nn
        from torch.utils.data import DataLoader

        class Trainer:
            def __init__(self):
                self.model = nn.Linear(4, 2).cuda()
                {}
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
                self.loader = DataLoader(data)

            def measure(self):
                self.size = self.model(sample).shape

            def fit(self):
                for x, y in self.loader:
                    loss = (self.model(x) - y).sum()
                    loss.backward()
                    self.optimizer.step()

        Trainer().fit()
        """
    assert "nn.Linear(4, 2).cuda()" in kept(trainer.format("self.measure()"))
    assert "nn.Linear(4, 2).cuda()" in dropped(trainer.format("self.size = 2"))


def test_a_move_on_the_way_into_a_function_out_of_sight_stays() -> None:
    handed = BUILT.replace(MOVED, "model = nn.Linear(4, 2)\nsummary(model.to(device), (4,))") + TRAINED
    assert "model.to(device)" in kept(handed)
