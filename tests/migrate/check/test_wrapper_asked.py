"""AM970: weights of a prepared model are taken by the Accelerator, whoever holds it; a wrapper is asked for no names."""

from __future__ import annotations

import pytest

from tests.migrate.check.reading import said

KEEPER = """
import torch
class Pair:
    def __init__(self):
        self.net, self.critic = Net(), Net()
        self.rate = SGD(self.net.parameters())
        {}
    def step(self, x):
        (self.net(x) - self.critic(x)).sum().backward()
        self.rate.step()
"""
PREPARED = (
    "from accel_runtime import Accelerator; self.accelerator = Accelerator(); "
    "self.net, self.critic, self.rate = self.accelerator.prepare(self.net, self.critic, self.rate)"
)
BEFORE, AFTER = KEEPER.format("pass"), KEEPER.format(PREPARED)
USER = "import torch\nfrom pair import Pair\n"


def refused(user: str, runtime: str = "accel_runtime") -> bool:
    before = {"pair.py": BEFORE, "main.py": USER + user}
    after = {"pair.py": AFTER.replace("accel_runtime", runtime), "main.py": USER + user}
    return bool(said("AM970", before, after))


@pytest.mark.parametrize(
    "user",
    [
        "it = Pair()\nit.step(1)\ntorch.save(it.net.state_dict(), 'a')\n",
        "both = {'first': Pair()}\nboth['first'].step(1)\ntorch.save(both['first'].critic.state_dict(), 'a')\n",
        "def write(thing, path):\n    torch.save(getattr(thing, 'net').state_dict(), path)\n"
        "it = Pair()\nit.step(1)\nwrite(it, 'a')\n",
        "class Twins(Pair):\n    def keep(self):\n        torch.save(self.net.cpu().state_dict(), 'a')\n"
        "it = Twins()\nit.step(1)\nit.keep()\n",
        "it = Pair()\nit.step(1)\nmine = it.net\ntorch.save({'net': mine}, 'a')\n",
    ],
)
def test_a_field_of_an_object_of_another_file(user: str) -> None:
    assert refused(user)
    assert refused(user, "accelerate")


@pytest.mark.parametrize(
    "user",
    [
        "it = Pair()\nit.net.load_state_dict(torch.load('a'))\n",
        "it = Pair()\nnames = [name for name, _ in it.net.named_parameters()]\n",
        "it = Pair()\nit.step(1)\nbest = copy.deepcopy(it.net)\n",
        "it = Pair()\nit.step(1)\nit.accelerator.save(it.net, 'a')\n",
        "it = Pair()\nit.step(1)\nif it.accelerator.is_main_process:\n    torch.save(it.net, 'a')\n",
    ],
)
def test_what_a_wrapper_alone_answers_otherwise(user: str) -> None:
    assert refused(f"import copy\n{user}", "accelerate")
    assert not refused(f"import copy\n{user}")


@pytest.mark.parametrize(
    "user",
    [
        "it = Pair()\nit.step(1)\ntorch.save(it.accelerator.get_state_dict(it.net), 'a')\n",
        "it = Pair()\nit.step(1)\ntorch.save(it.accelerator.unwrap_model(it.net).state_dict(), 'a')\n",
        "it = Pair()\ntorch.save(it.rate.state_dict(), 'a')\n",
        "class Other:\n    def __init__(self):\n        self.net = Net()\n"
        "it = Pair()\nit.step(1)\ntorch.save(Other().net.state_dict(), 'a')\n",
        "net = Net()\nnet.load_state_dict(torch.load('a'))\nit = Pair()\nit.step(1)\n",
    ],
)
def test_what_is_the_model_itself_or_another_object(user: str) -> None:
    assert not refused(user)
    assert not refused(user, "accelerate")


@pytest.mark.parametrize(
    "user",
    [
        "from train import net\nimport torch\ntorch.save(net.state_dict(), 'a')\n",
        "import train, torch\ntorch.save(train.net.state_dict(), 'a')\n",
        "from train import fit\nimport torch\ntorch.save(fit().state_dict(), 'a')\n",
        "from train import fit\nimport torch\nbest = fit()\nbest = best.eval()\ntorch.save(best, 'a')\n",
    ],
)
def test_what_another_file_imports_or_gets_back(user: str) -> None:
    text = "net = Net()\n{}\ndef fit():\n    net(1).sum().backward()\n    return net\n"
    made = "from accel_runtime import Accelerator\naccelerator = Accelerator()\nnet = accelerator.prepare(net)"
    before = {"train.py": text.format(""), "main.py": user}
    for prepared in (made, made.replace("accel_runtime", "accelerate")):
        assert said("AM970", before, {"train.py": text.format(prepared), "main.py": user})


def test_a_name_that_is_another_model_by_then() -> None:
    text = "net = Net()\n{}\nnet(1)\nnet = Net()\nnet.load_state_dict(load())\n"
    made = "from accelerate import Accelerator\naccelerator = Accelerator()\nnet = accelerator.prepare(net)"
    assert not said("AM970", text.format(""), text.format(made))
    assert said("AM970", text.format(""), text.format(made).replace("net = Net()\nnet.load", "net.load"))


SAVE = "def save(model, path):\n    torch.save(model.state_dict(), path)\n"


@pytest.mark.parametrize(
    "user",
    [
        ("class Way:\n    save = staticmethod(save)\nWay.save({}, 'a')\n"),
        ("from types import SimpleNamespace\nway = SimpleNamespace(keep=save)\nway.keep({}, 'a')\n"),
        ("known = {{}}\nknown[save.__name__] = save\nknown['save']({}, 'a')\n"),
        ("class Ways:\n    def __init__(self):\n        self.all = []\n    def run(self, *given):\n"
         "        return [way(*given) for way in self.all]\nways = Ways()\nways.all.append(save)\nways.run({}, 'a')\n"),
        ("class Way:\n    @property\n    def keep(self):\n        return save\nWay().keep({}, 'a')\n"),
        ("class Way:\n    def keep(self, model, path):\n        save(model, path)\nway = choose(Way())\n"
         "getattr(way, 'keep')({}, 'a')\n"),
    ],
)  # fmt: skip
def test_a_function_that_is_reached_by_ways_of_its_own(user: str) -> None:
    run = f"{SAVE}it = Pair()\nit.step(1)\n{user}"
    for runtime in ("accel_runtime", "accelerate"):
        assert refused(run.format("it.net"), runtime)
        assert not refused(run.format("Net()"), runtime)


def test_a_method_of_the_model_itself_takes_its_weights() -> None:
    source = (
        "import torch\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\nclass Net(torch.nn.Module):\n"
        "    def keep(self):\n        torch.save({}, 'a')\nnet = Net()\n{}net = accelerator.prepare(net)\nnet(1)\n{}"
    )
    assert said("AM970", "x = 1\n", source.format("self.state_dict()", "", "net.keep()\n"))
    assert not said("AM970", "x = 1\n", source.format("self.state_dict()", "net.keep()\n", ""))
    assert not said("AM970", "x = 1\n", source.format("accelerator.get_state_dict(self)", "", "net.keep()\n"))


@pytest.mark.parametrize("read", ["torch.load('a')['net']", "kept['net']"])
def test_what_a_file_holds_is_no_model_of_this_run(read: str) -> None:
    text = "import torch\nkept = torch.load('a')\nnet = Net()\n{}\nnet(1)\n"
    text += f"torch.save({{{{'net': net}}}}, 'a')\nother = {read}\nprint(other.state_dict())\n"
    made = "from accel_runtime import Accelerator\naccelerator = Accelerator()\nnet = accelerator.prepare(net)"
    result = text.format(made).replace("torch.save(", "accelerator.save(")
    assert not said("AM970", text.format(""), result)
    assert said("AM970", text.format(""), result.replace(f"other = {read}", "other = net"))
