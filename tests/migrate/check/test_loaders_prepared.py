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


ORIGINAL = (
    "from torch.utils.data import DataLoader\nnet, loader = Net().to(device), DataLoader(data)\n"
    "for x in loader:\n    x = x.to(device)\n    net(x).backward()\n"
)
AGAIN = "loader = DataLoader(shown)\n"
LOOKS = [
    AGAIN + "for x in loader:\n    {}\n    print(net(x))\n",
    "if shown:\n    " + AGAIN + "for i, x in enumerate(tqdm(loader)):\n    {}\n    print(net(x))\n",
    "others = DataLoader(shown)\nfor x in others:\n    {}\n    print(net(x))\n",
    AGAIN + "x = next(iter(loader))\n{}\nprint(net(x))\n",
    AGAIN + "rows = iter(loader)\ntry:\n    x = next(rows)\nexcept StopIteration:\n    pass\n{}\nprint(net(x))\n",
    "def look(rows):\n    for x in rows:\n        {}\n        print(net(x))\nlook(loader)\nlook(DataLoader(shown))\n",
    "def make():\n    return DataLoader(shown)\nloader = make()\nfor x in loader:\n    {}\n    print(net(x))\n",
]


@pytest.mark.parametrize("look", LOOKS)
def test_batches_that_lost_their_moves_are_of_a_prepared_loader(look: str) -> None:
    result = TOP + PREPARED + "run(net, loader)\n"
    before, moved = ORIGINAL + look.format("x = x.to(device)"), look.format("x = x.to(accelerator.device)")
    assert said("AM973", before, result + look.format("pass"))
    assert not said("AM973", before, result + moved)
    assert not said("AM973", before, result + look.format("pass").replace("DataLoader(shown)", "loader"))


def test_a_look_before_prepare_that_moves_nothing() -> None:
    look = "x = next(iter(loader))\nprint(x.shape)\n"
    head, tail = ORIGINAL.split("for x")
    trained = "for x in loader:\n    accelerator.backward(net(x))\n"
    assert not said("AM973", head + look + "for x" + tail, TOP + look + PREPARED + trained)


def test_moves_of_another_loop_are_its_own() -> None:
    look = "loader = DataLoader(shown)\nx = next(iter(loader))\nx = x.to(device)\nprint(net(x))\n"
    assert not said("AM973", ORIGINAL + look, TOP + PREPARED + "for x in loader:\n    run(net, [x])\n" + look)
