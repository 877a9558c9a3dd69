"""AM960: what trains is what was prepared."""

from __future__ import annotations

from tests.migrate.check.reading import said

TOP = "import torch\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\n"
TRAINER = (
    "class Trainer:\n    def __init__(self, net, opt):\n        self.net = net\n        self.opt = opt\n"
    "    def fit(self, x):\n        accelerator.backward(self.net(x))\n        self.opt.step()\n"
)
PREPARED = "net, opt = accelerator.prepare(net, opt)\n"


def test_an_object_that_keeps_the_model_from_before() -> None:
    assert said("AM960", "x = 1\n", TOP + TRAINER + "trainer = Trainer(net, opt=opt)\n" + PREPARED + "trainer.fit(1)\n")
    assert not said("AM960", "x = 1\n", TOP + TRAINER + PREPARED + "trainer = Trainer(net, opt)\ntrainer.fit(1)\n")
    size = (
        TRAINER.replace("self.net = net", "self.size = len(net)")
        .replace("self.net(x)", "x")
        .replace("self.opt = opt", "pass")
    )
    assert not said("AM960", "x = 1\n", TOP + size + "trainer = Trainer(net, opt)\n" + PREPARED)


def test_a_name_that_gets_another_model_afterwards() -> None:
    assert said("AM960", "x = 1\n", TOP + PREPARED + "net(1)\nnet = torch.load('net.pt')\nnet(2)\n")
    assert not said("AM960", "x = 1\n", TOP + PREPARED + "net(1)\nnet = net.eval()\nnet(2)\n")
    located = "net = torch.load('net.pt', map_location=accelerator.device)\nnet(2)\n"
    assert not said("AM960", "x = 1\n", TOP + PREPARED + "net(1)\n" + located)
    assert not said(
        "AM960", "x = 1\n", TOP + PREPARED + "net(1)\nnet = Net()\nopt = SGD(net)\n" + PREPARED + "net(2)\n"
    )


def test_a_wrapper_out_of_sight_that_steps_the_optimizer_from_before() -> None:
    lines = "from elsewhere import Warming\nadam = torch.optim.Adam(net.parameters())\nopt = Warming(adam, 3)\n"
    steps = "opt.zero_grad()\naccelerator.backward(net(1))\nopt.step()\n"
    assert said("AM960", "x = 1\n", TOP + lines + "net, adam, opt = accelerator.prepare(net, adam, opt)\n" + steps)
    later = (
        lines.replace("opt = Warming(adam, 3)\n", "")
        + "net, adam = accelerator.prepare(net, adam)\nopt = Warming(adam, 3)\n"
    )
    assert not said("AM960", "x = 1\n", TOP + later + steps)
    rates = lines.replace("opt", "rates") + "net, adam, rates = accelerator.prepare(net, adam, rates)\nrates.step()\n"
    assert not said("AM960", "x = 1\n", TOP + rates + steps.replace("opt", "adam"))


def test_another_model_after_prepare_that_nothing_moves() -> None:
    after = TOP + PREPARED + "net(1)\n"
    assert said("AM960", "x = 1\n", after + "net = Net()\nnet(2)\n")
    assert not said("AM960", "x = 1\n", after + "net = Net().to(accelerator.device)\nnet(2)\n")
    assert not said("AM960", "x = 1\n", after + "net = Net()\nnet.to(accelerator.device)\nnet(2)\n")
    assert not said("AM960", "x = 1\n", TOP + "net = Net()\n" + PREPARED + "net(1)\n")
    folds = "for fold in folds:\n    net = Net()\n    opt = SGD(net)\n    " + PREPARED + "    net(1)\n"
    assert not said("AM960", "x = 1\n", TOP + folds)


def test_another_model_that_the_original_did_not_move_either() -> None:
    after = TOP + PREPARED + "net(1)\nnet = Net()\nnet(2)\n"
    before = "net = Net().to(device)\nnet(1)\nnet = Net()\nnet(2)\n"
    assert not said("AM960", before, after)
    assert said("AM960", before + "net.cuda()\n", after)
    assert said("AM960", before + "def run(model):\n    model.to(device)\nrun(net)\n", after)
    assert said("AM960", before.replace("net = Net()\n", "net = Net().to(device)\n"), after)


def test_a_method_that_builds_is_called_again() -> None:
    solver = (
        "class Solver:\n    def __init__(self):\n        self.accelerator = Accelerator()\n        self.build()\n"
        "        self.net, self.opt = self.accelerator.prepare(self.net, self.opt)\n"
        "    def build(self):\n        self.net = Net()\n        self.opt = SGD(self.net)\n"
        "    def train(self):\n        self.net(1)\n        self.build()\n        self.net(2)\n"
    )
    start = "from accel_runtime import Accelerator\n"
    assert said("AM960", "x = 1\n", start + solver + "Solver().train()\n")
    moved = solver.replace("SGD(self.net)\n", "SGD(self.net)\n        self.net.to(self.accelerator.device)\n")
    assert not said("AM960", "x = 1\n", start + moved + "Solver().train()\n")
    once = solver.replace("        self.build()\n        self.net(2)\n", "")
    assert not said("AM960", "x = 1\n", start + once + "Solver().train()\n")


def test_a_loader_that_is_built_again_and_trained_on() -> None:
    made = "data = torch.utils.data.DataLoader(d)\n"
    top = TOP + made + "net, opt, data = accelerator.prepare(net, opt, data)\n"
    loop = "for epoch in range(3):\n    {}\n    for x in data:\n        {}\n"
    again = made.strip()
    train = "accelerator.backward(net(x))"
    assert said("AM960", "x = 1\n", top + loop.format(again, train))
    assert said("AM960", "x = 1\n", top + loop.format(f"if epoch == 1:\n        {again}", train))
    assert not said("AM960", "x = 1\n", top + loop.format("pass", train) + made + "for x in data:\n    show(x)\n")
    prepared = again + "\n    data = accelerator.prepare(data)"
    assert not said("AM960", "x = 1\n", top + loop.format(prepared, train))
    handed = "def train(batches):\n    for x in batches:\n        accelerator.backward(net(x))\n"
    assert said("AM960", "x = 1\n", top + handed + f"for epoch in range(3):\n    {again}\n    train(data)\n")
    assert said("AM960", "x = 1\n", top + handed + f"for epoch in range(3):\n    train(data)\n    {again}\n")
    assert not said(
        "AM960", "x = 1\n", top + handed + f"for epoch in range(3):\n    train(data)\n{again}\nshow(data)\n"
    )
    swapped = (
        "other = torch.utils.data.DataLoader(e)\n" + loop.format("pass", train) + "    data, other = other, data\n"
    )
    assert said("AM960", "x = 1\n", top + swapped)
    assert not said("AM960", "x = 1\n", top + loop.format("data = tqdm(data)", train))


def test_a_base_class_of_another_file_sets_the_loader_again() -> None:
    base = (
        "from torch.utils.data import DataLoader\nclass Base:\n    def fit(self):\n        self.run()\n        {}\n"
        "    def run(self):\n        raise NotImplementedError\n"
    )
    own = (
        "from accel_runtime import Accelerator\nfrom torch.utils.data import DataLoader\nfrom base import Base\n"
        "class Own(Base):\n    def __init__(self, net, data):\n        self.net = net\n"
        "        self.loader = DataLoader(data)\n        self.accelerator = Accelerator()\n"
        "        self.net, self.loader = self.accelerator.prepare(self.net, self.loader)\n"
        "    def run(self):\n        for x in self.loader:\n            self.accelerator.backward(self.net(x))\n"
        "Own(net, data).fit()\n"
    )
    for text, found in (("self.loader = DataLoader(more)", True), ("self.other = DataLoader(more)", False)):
        files = {"own.py": own, "base.py": base.format(text)}
        assert bool(said("AM960", {**files, "own.py": "from base import Base\n"}, files)) is found


def test_a_loader_of_an_object_that_another_file_exchanges() -> None:
    own = (
        "from accel_runtime import Accelerator\nclass Own:\n    def __init__(self, net, loader):\n        self.net = net\n"
        "        self.loader = loader\n        self.accelerator = Accelerator()\n"
        "        self.net, self.loader = self.accelerator.prepare(self.net, self.loader)\n"
        "    def step(self, x):\n        self.accelerator.backward(self.net(x))\n"
        "    def fit(self):\n        for x in self.loader:\n            self.step(x)\n"
    )
    start = "from own import Own\nit = Own(net, first)\nit.fit()\n"
    for text, found in (
        ("it.loader = second\n", True),
        ("it.loader, second = second, it.loader\n", True),
        ("def turn(one, other):\n    one.loader = other\nturn(it, second)\n", True),
        ("it.loader = None\n", False),
        ("it.best = second\n", False),
        ("class Other:\n    def __init__(self):\n        self.loader = []\nOther().loader = second\n", False),
    ):
        files = {"own.py": own, "main.py": start + text + "it.fit()\n"}
        assert bool(said("AM960", {**files, "own.py": "x = 1\n"}, files)) is found, text


def test_a_loader_by_key_that_is_exchanged() -> None:
    top = TOP + "net, loaders['train'] = accelerator.prepare(net, loaders['train'])\n"
    loop = "for epoch in range(3):\n    for x in loaders['train']:\n        accelerator.backward(net(x))\n    {}\n"
    assert said("AM960", "x = 1\n", top + loop.format("loaders['train'] = build(epoch)"))
    assert not said("AM960", "x = 1\n", top + loop.format("loaders['test'] = build(epoch)"))


REBUILT = """
from accel_runtime import Accelerator
import torch

class Trainer:
    def __init__(self, net):
        self.accelerator = Accelerator()
        self.net = net
        self.build()
        self.net, self.optimizer = self.accelerator.prepare(self.net, self.optimizer)

    def build(self):
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def epoch(self, x):
        FIRST
        self.optimizer.zero_grad()
        self.accelerator.backward(self.net(x))
        self.optimizer.step()
        LAST

Trainer(net).epoch(x)
"""


def test_an_optimizer_that_each_epoch_builds_again() -> None:
    rebuilt = REBUILT.replace("FIRST", "self.build()").replace("LAST", "pass")
    assert any(
        "would make another self.optimizer, which nothing prepares" in each
        for each in said("AM960", "x = 1\n", rebuilt)
    )


def test_an_optimizer_that_is_built_again_and_steps_no_more() -> None:
    rebuilt = REBUILT.replace("FIRST", "pass").replace("LAST", "self.build()")
    assert not any("another self.optimizer" in each for each in said("AM960", "x = 1\n", rebuilt))
