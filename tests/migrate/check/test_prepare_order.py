"""AM953: `prepare` comes after what builds its arguments, before all that trains with them, and once."""

from __future__ import annotations

from tests.migrate.check.reading import said

TOP = "from accel_runtime import Accelerator\naccelerator = Accelerator()\nnet = Net()\nopt = SGD(net.parameters())\n"
PREPARED = "net, opt, data = accelerator.prepare(net, opt, data)\n"
LOOP = "for x in data:\n    accelerator.backward(net(x))\n    opt.step()\n"


def test_a_loop_that_trains_before_prepare() -> None:
    assert said("AM953", "x = 1\n", TOP + LOOP + PREPARED)
    assert not said("AM953", "x = 1\n", TOP + PREPARED + LOOP)


def test_a_function_that_trains_called_before_prepare() -> None:
    train = "def fit(data):\n    for x in data:\n        accelerator.backward(net(x))\n        opt.step()\n"
    assert said("AM953", "x = 1\n", TOP + train + "fit(data)\n" + PREPARED)
    assert not said("AM953", "x = 1\n", TOP + train + PREPARED + "fit(data)\n")


def test_prepare_on_one_branch_only() -> None:
    branch = "if big:\n    net, opt, data = accelerator.prepare(net, opt, data)\n"
    assert said("AM953", "x = 1\n", TOP + branch + LOOP)


def test_an_object_that_is_built_and_prepared_on_one_branch() -> None:
    built = "if adam:\n    opt = Adam(net.parameters())\n    opt = accelerator.prepare(opt)\n"
    used = "for x in data:\n    accelerator.backward(net(x))\n    if adam:\n        opt.step()\n"
    start = TOP.replace("opt = SGD(net.parameters())\n", "")
    assert not said("AM953", "x = 1\n", start + "net = accelerator.prepare(net)\n" + built + used)


def test_a_method_that_trains_before_the_constructor_prepares() -> None:
    early = (
        "class Trainer:\n    def __init__(self):\n        self.net = Net()\n        self.accelerator = Accelerator()\n"
        "        self.warm()\n        self.net = self.accelerator.prepare(self.net)\n"
        "    def warm(self):\n        self.accelerator.backward(self.net(1))\n"
    )
    assert said("AM953", "x = 1\n", "from accel_runtime import Accelerator\n" + early)
    late = early.replace("        self.warm()\n", "")
    assert not said("AM953", "x = 1\n", "from accel_runtime import Accelerator\n" + late + "Trainer().warm()\n")


def test_an_object_that_is_prepared_twice() -> None:
    assert said("AM953", "x = 1\n", TOP + PREPARED + PREPARED + LOOP)
    again = TOP + PREPARED + LOOP + "net = Net()\nopt = SGD(net.parameters())\ndata = load()\n" + PREPARED + LOOP
    assert not said("AM953", "x = 1\n", again)


def test_prepare_in_a_loop_that_does_not_build_what_it_prepares() -> None:
    inside = "for epoch in range(3):\n    net, opt, data = accelerator.prepare(net, opt, data)\n"
    assert said("AM953", "x = 1\n", TOP + inside)
    built = (
        "for fold in folds:\n    net = Net()\n    net = accelerator.prepare(net)\n    accelerator.backward(net(fold))\n"
    )
    assert not said("AM953", "x = 1\n", "from accel_runtime import Accelerator\naccelerator = Accelerator()\n" + built)


def test_prepare_in_a_function_that_a_loop_calls_for_what_it_did_not_build() -> None:
    epoch = (
        "def epoch(net, opt, data):\n    bar = Bar(data)\n    net, opt, bar = accelerator.prepare(net, opt, bar)\n"
        "    for x in bar:\n        accelerator.backward(net(x))\n        opt.step()\n"
    )
    assert said("AM953", "x = 1\n", TOP + epoch + "for number in range(3):\n    epoch(net, opt, data)\n")
    through = "def fit(model, opt):\n    epoch(model, opt, data)\nwhile True:\n    fit(net, opt)\n"
    assert said("AM953", "x = 1\n", TOP + epoch + through)
    assert not said("AM953", "x = 1\n", TOP + epoch + "epoch(net, opt, data)\n")
    folds = "for fold in folds:\n    net = Net()\n    opt = SGD(net.parameters())\n    epoch(net, opt, data)\n"
    assert not said("AM953", "x = 1\n", TOP + epoch + folds)


def test_a_loader_that_a_loop_hands_over_again_is_given_back_as_it_was_prepared() -> None:
    epoch = (
        "def epoch(net, opt, data):\n    {}data = accelerator.prepare({}data)\n"
        "    for x in data:\n        accelerator.backward(net(x))\n        opt.step()\n"
    )
    calls = (
        "import torch\ndata = torch.utils.data.DataLoader(rows())\nfor number in range(3):\n    epoch(net, opt, data)\n"
    )
    assert not said("AM953", "x = 1\n", TOP + epoch.format("", "") + calls)
    assert said("AM953", "x = 1\n", TOP + epoch.format("net, ", "net, ") + calls)


def test_an_attribute_that_is_set_on_one_branch_only() -> None:
    agent = (
        "from accel_runtime import Accelerator\nclass Agent:\n    def __init__(self, tune):\n"
        "        self.accelerator = Accelerator()\n        self.net = Net()\n{}"
        "        self.net, self.opt = self.accelerator.prepare(self.net, self.opt)\n"
    )
    one = "        if tune:\n            self.opt = Adam(self.net.parameters())\n"
    assert said("AM953", "x = 1\n", agent.format(one))
    assert not said(
        "AM953", "x = 1\n", agent.format(one + "        else:\n            self.opt = SGD(self.net.parameters())\n")
    )
    assert not said("AM953", "x = 1\n", agent.format("        self.opt = None\n" + one))
    same = one + "        if tune:\n            self.opt = self.accelerator.prepare(self.opt)\n        self.opt = 0\n"
    assert not said("AM953", "x = 1\n", agent.format(same))


SECOND = "wide = Wide()\nother = SGD(wide.parameters())\n"
PREPARED_SECOND = "wide, other = accelerator.prepare(wide, other)\n"
FIT = "def fit(net, opt):\n    for x in data:\n        accelerator.backward(net(x))\n        opt.step()\n"


def test_a_training_of_other_objects_before_these_are_built() -> None:
    first = TOP + FIT + PREPARED + "fit(net, opt)\n"
    assert not said("AM953", "x = 1\n", first + SECOND + PREPARED_SECOND + "fit(wide, other)\n")
    assert said("AM953", "x = 1\n", first + SECOND + "fit(wide, other)\n" + PREPARED_SECOND)


def test_a_name_that_is_given_a_new_object_which_trains_before_it_is_prepared() -> None:
    again = TOP + FIT + PREPARED + "fit(net, opt)\nnet = Net()\nopt = SGD(net.parameters())\n"
    two = "net, opt = accelerator.prepare(net, opt)\n"
    assert not said("AM953", "x = 1\n", again + two + "fit(net, opt)\n")
    assert said("AM953", "x = 1\n", again + "fit(net, opt)\n" + two)
    assert not said("AM953", "x = 1\n", TOP + FIT + PREPARED + "net = net.train()\nfit(net, opt)\n")


def test_a_length_that_was_asked_before_decides_how_often_is_drawn() -> None:
    top = "from accel_runtime import Accelerator\naccelerator = Accelerator()\n"
    counted, prepared = "rounds = min(9, len(data))\n", "net, data = accelerator.prepare(net, data)\n"
    drawn = "batches = iter(data)\nfor i in tqdm(range(rounds)):\n    accelerator.backward(net(next(batches)))\n"
    assert (
        "`next(batches)` would run out on N processes" in said("AM953", "x = 1\n", top + counted + prepared + drawn)[0]
    )
    assert not said("AM953", "x = 1\n", top + prepared + counted + drawn)
    assert not said("AM953", "x = 1\n", top + counted + prepared + drawn.replace("iter(data)", "iter(cycle(data))"))
    caught = drawn.replace(
        "    acc", "    try:\n        x = next(batches)\n    except StopIteration:\n        break\n    acc"
    )
    assert not said("AM953", "x = 1\n", top + counted + prepared + caught.replace("net(next(batches))", "net(x)"))
    other = drawn.replace("range(rounds)", "range(5)")
    assert not said("AM953", "x = 1\n", top + counted + prepared + other)
