"""AM973: a training loop goes over what prepare() returned, on every path."""

from __future__ import annotations

import pytest

from tests.migrate.check.reading import said

TOP = (
    "import functools, itertools\nfrom accel_runtime import Accelerator\nfrom torch.utils.data import DataLoader\n"
    "accelerator = Accelerator()\ndef run(net, batches):\n    for x in batches:\n        accelerator.backward(net(x))\n"
    "loader = DataLoader(data)\n"
)
PREPARED = "net, loader = accelerator.prepare(net, loader)\n"


@pytest.mark.parametrize(
    ("early", "given"),
    [
        ("kept = {'train': loader}", "kept['train']"),
        ("kept = [loader, 3]", "kept[0]"),
        ("kept = loader", "kept"),
        ("kept = tqdm(loader)", "kept"),
        ("def draw(): return DataLoader(data)\nloader = draw()\nkept = loader", "kept"),
        ("first = loader\nkept = first", "kept"),
    ],
)
def test_a_loader_that_was_kept_before(early: str, given: str) -> None:
    assert said("AM973", "x = 1\n", f"{TOP}{early}\n{PREPARED}run(net, {given})\n")
    assert not said(
        "AM973", "x = 1\n", f"{TOP}{PREPARED}{early if 'draw' not in early else 'kept = loader'}\nrun(net, {given})\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "def renew():\n    global loader\n    loader = DataLoader(loader.dataset)\nrun(net, loader)\nrenew()\nrun(net, loader)\n",
        "if other:\n    loader = DataLoader(data)\nrun(net, loader)\n",
        "for epoch in range(3):\n    run(net, loader)\n    loader = DataLoader(data)\n",
    ],
)
def test_a_loader_that_takes_its_place(text: str) -> None:
    assert said("AM973", "x = 1\n", TOP + PREPARED + text)


def test_an_argument_that_was_bound_before() -> None:
    bound = "go = functools.partial(run, batches=loader)\n"
    assert said("AM973", "x = 1\n", TOP + bound + PREPARED + "go(net)\n")
    assert not said("AM973", "x = 1\n", TOP + PREPARED + bound + "go(net)\n")


def test_what_only_goes_over_a_loader_is_not_prepared() -> None:
    text = TOP + "both = itertools.chain(loader, loader)\nnet, both = accelerator.prepare(net, both)\nrun(net, both)\n"
    assert said("AM973", "x = 1\n", text)
    assert not said("AM973", "x = 1\n", TOP + PREPARED + "run(net, itertools.chain(loader, loader))\n")


@pytest.mark.parametrize(
    "text",
    [
        "run(net, loader)\n",
        "run(net, tqdm(enumerate(loader)))\n",
        "bar = tqdm(loader)\nrun(net, bar)\n",
        "def fit():\n    for x in loader:\n        accelerator.backward(net(x))\nfit()\n",
        "for fold in range(2):\n    loader = DataLoader(data)\n    loader = accelerator.prepare(loader)\n    run(net, loader)\n",
        "held_out = DataLoader(other)\nfor x in held_out:\n    print(net(x))\nrun(net, loader)\n",
    ],
)
def test_prepared_on_every_path(text: str) -> None:
    assert not said("AM973", "x = 1\n", TOP + PREPARED + text)


def test_methods_that_build_before_prepare() -> None:
    solver = (
        "class Solver:\n    def __init__(self):\n        self.accelerator = Accelerator()\n        self.build()\n"
        "        self.net, self.loader = self.accelerator.prepare(self.net, self.loader)\n{}"
        "    def build(self):\n        self.net, self.loader = Net(), DataLoader(data)\n"
        "    def train(self):\n        for x in self.loader:\n            self.accelerator.backward(self.net(x))\n"
    )
    top = "from accel_runtime import Accelerator\nfrom torch.utils.data import DataLoader\n"
    assert not said("AM973", "x = 1\n", top + solver.format("") + "Solver().train()\n")
    assert said("AM973", "x = 1\n", top + solver.format("        self.build()\n") + "Solver().train()\n")
