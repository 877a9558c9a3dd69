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
