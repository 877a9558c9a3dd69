"""AM956: what met on one device still does."""

from __future__ import annotations

import pytest

from tests.migrate.check.reading import said

TOP = "import torch, sys, argparse\nfrom accel_runtime import Accelerator\naccelerator = Accelerator({})\n"
CHOSEN = "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
MODEL = "net = accelerator.prepare(net)\naccelerator.backward(net(x))\n"


@pytest.mark.parametrize(
    "kept",
    [
        CHOSEN + "x = x.to(device)\n",
        "x = x.to('cuda:1')\n",
        "x = torch.zeros(3, device='cuda:0')\n",
        "p = argparse.ArgumentParser()\np.add_argument('--device')\nargs = p.parse_args()\nx = x.to(args.device)\n",
        "class A:\n    def __init__(self):\n        self.device = torch.device('cuda:0')\n"
        "    def go(self, x):\n        return x.to(self.device)\nx = A().go(x)\n",
        "from settings import *\nx = x.to(device)\n",
        "def pick():\n    return torch.device('cuda:1')\nx = x.to(pick())\n",
        "def move(x, device):\n    return x.to(device)\nmove(x, 'cuda:1')\n",
        "settings = load()\nx = x.to(settings['device'])\n",
        "place = load().get('place')\nx = x.to(place)\n",
        "table = {'place': 'cuda:1'}\nx = x.to(table['place'])\n",
        "config = load('config.yaml')\nx = x.to(config.device)\n",
        "config = load('config.yaml')\nx = x.to(config.training.device)\n",
        "config = load('config.yaml')\nkind = kinds[config.kind]\nx = x.to(config.device)\n",
        "config = load('config.yaml')\nx = x.to(config['training'].device)\n",
        "def search(given):\n    return torch.zeros(3, device=given.device)\nsearch(load('config.yaml'))\n",
        "class Layer(nn.Module):\n    def forward(self, x, config):\n        return x.to(config.device)\nLayer()(x, load())\n",
    ],
)
def test_data_that_follows_a_device_of_the_script(kept: str) -> None:
    assert said("AM956", "x = 1\n", TOP.format("") + kept + MODEL)


@pytest.mark.parametrize(
    "kept",
    [
        "device = accelerator.device\nx = x.to(device)\n",
        "x = x.to(accelerator.device)\n",
        "x = x.cuda()\n",
        "y = y.cpu()\nz = z.to('cpu')\n",
        "z = x + 1\ny = y.to(x.device)\n",
        "y = y.to(next(net.parameters()).device)\n",
        "device = torch.device('cuda') if x.is_cuda else torch.device('cpu')\ny = y.to(device)\n",
        "first = x[0]\ny = y.to(x.device)\n",
        "picked = scores[order]\ny = y.to(order.device)\n",
        "best = scores.argmax(1)\ny = y.to(scores.device)\n",
        "rows = torch.from_numpy(table).float()\ny = y.to(rows.device)\n",
        "y = torch.zeros(3, device=rows[0][1].device)\n",
        "def search(rows):\n    return torch.zeros(3, device=rows.device)\nsearch(x.transpose(0, 1))\n",
        "class Layer(nn.Module):\n    def forward(self, edges):\n        return torch.ones(3, device=edges.device)\nLayer()(x)\n",
        "y = y.to(torch.float16)\n",
        "from settings import *\ny = y.to(float)\n",
        "y = y.to(x)\n",
    ],
)
def test_data_that_follows_the_accelerator_or_goes_to_the_cpu_by_name(kept: str) -> None:
    assert not said("AM956", "x = 1\n", TOP.format("") + kept + MODEL)


def test_an_accelerator_that_was_told_the_scripts_choice() -> None:
    assert not said("AM956", "x = 1\n", TOP.format("cpu=no_cuda") + CHOSEN + "x = x.to(device)\n" + MODEL)
    assert said("AM956", "x = 1\n", TOP.format("cpu=no_cuda") + "x = x.to('cuda:1')\n" + MODEL)


def test_what_a_prepared_model_is_fed_from_the_cpu() -> None:
    fed = (
        "def score(net, x, device=torch.device('cpu')):\n    x = x.to(device)\n    return net(x)\n"
        "net = accelerator.prepare(net)\nscore(net, x)\n"
    )
    assert said("AM956", "x = 1\n", TOP.format("") + fed)
    assert not said("AM956", "x = 1\n", TOP.format("cpu=True") + fed)
    assert not said(
        "AM956", "x = 1\n", TOP.format("") + fed.replace("score(net, x)\n", "score(net, x, accelerator.device)\n")
    )


@pytest.mark.parametrize(("kept", "told"), [("shown", False), ("made", False), ("noise", True)])
def test_a_name_that_is_bound_again_before_a_prepared_model_is_fed_with_it(kept: str, told: bool) -> None:
    fed = (
        "net = accelerator.prepare(net)\nnoise = torch.randn(4, device=accelerator.device)\nfor epoch in range(3):\n"
        f"    made = net(noise)\n    net(made)\n    {kept} = net(noise).cpu()\n"
    )
    assert bool(said("AM956", "x = 1\n", TOP.format("") + fed)) is told


def test_a_device_that_a_class_keeps_is_not_the_option_of_its_name() -> None:
    parsed = "p = argparse.ArgumentParser()\np.add_argument('--device')\nargs = p.parse_args()\n"
    kept = "class Net:\n    def __init__(self, device):\n        self.device = device\n"
    kept += "    def forward(self, x):\n        return x.to(self.device)\nnet = Net({})\n"
    told = TOP.format("device=args.device") + parsed
    assert not said("AM956", "x = 1\n", told + kept.format("accelerator.device") + MODEL)
    assert said("AM956", "x = 1\n", TOP.format("") + parsed + kept.format("args.device") + MODEL)


def test_another_script_beside_the_one_that_trains() -> None:
    train = TOP.format("") + "from nets import Net\nnet = Net()\n" + MODEL
    predict = "import torch\nfrom nets import Net\n" + CHOSEN + "net = Net().to(device)\n"
    files = {"nets.py": "class Net: pass\n", "predict.py": predict}
    assert not said("AM956", {"train.py": "x = 1\n", **files}, {"train.py": train, **files})
    used = train.replace("net = Net()", "import predict\nnet = Net()")
    assert said("AM956", {"train.py": "import predict\n", **files}, {"train.py": used, **files})


def test_a_model_that_goes_to_a_gpu_before_the_accelerator_chooses_one() -> None:
    make = "def make():\n    return Net().cuda()\n"
    early = "from accel_runtime import Accelerator\n" + make + "net = make()\naccelerator = Accelerator()\n" + MODEL
    late = "from accel_runtime import Accelerator\n" + make + "accelerator = Accelerator()\nnet = make()\n" + MODEL
    assert said("AM956", "x = 1\n", early)
    assert not said("AM956", "x = 1\n", late)


def test_what_runs_only_when_an_imported_file_is_the_script() -> None:
    moved = "place = 'cuda' if torch.cuda.is_available() else 'cpu'\nprobe = torch.ones(1).to(place)\n"
    tried = "import torch\nif __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in moved.splitlines())
    main = "import parts\n" + TOP.format("") + MODEL
    assert not said("AM956", {"main.py": "import parts\n", "parts.py": tried}, {"main.py": main, "parts.py": tried})
    always = "import torch\n" + moved
    assert said("AM956", {"main.py": "import parts\n", "parts.py": always}, {"main.py": main, "parts.py": always})


@pytest.mark.parametrize(
    ("moved", "called", "told"),
    [
        ("self.net.to(device)", "set_device(device)", True),
        ("self.to(device)", "set_device('cuda:0')", True),
        ("self.to(device)", "set_device(args.place)", True),
        ("self.to(device)", "set_device(accelerator.device)", False),
        ("self.cuda()", "set_device()", False),
        ("self.device = device", "set_device(device)", False),
    ],
)
def test_a_method_that_moves_the_prepared_model(moved: str, called: str, told: bool) -> None:
    model = f"class Net(torch.nn.Module):\n    def set_device(self, device=None):\n        {moved}\n"
    script = (
        TOP.format("") + CHOSEN + model + "net = accelerator.prepare(Net())\naccelerator.unwrap_model(net)." + called
    )
    messages = said("AM956", "x = 1\n", script + "\n")
    assert any("would move the prepared model" in message for message in messages) == told


CONFIG = "import torch\nPLACE = torch.device('cuda')\n"
LOSS = "{}\nclass Features:\n    def __init__(self):\n        self.net = Net().to({})\n"


@pytest.mark.parametrize(
    ("brought", "named"), [("import config", "config.PLACE"), ("from config import PLACE", "PLACE")]
)
def test_an_object_of_another_file_that_goes_to_the_first_gpu_too_early(brought: str, named: str) -> None:
    files = {"config.py": CONFIG, "loss.py": LOSS.format(brought, named), "train.py": "import loss\n"}
    used = "from loss import Features\n"
    early = used + "seen = Features()\n" + TOP.format("") + MODEL
    assert said("AM956", files, {**files, "train.py": early})
    assert not said("AM956", files, {**files, "train.py": used + TOP.format("") + "seen = Features()\n" + MODEL})


def test_a_model_that_a_file_beside_moves_where_a_configuration_says() -> None:
    files = {
        "build.py": "def build(chosen):\n    return Net().to(chosen['place'])\n",
        "main.py": "from build import build\nfrom train import fit\nchosen = load()\nfit(chosen, build(chosen))\n",
        "train.py": "x = 1\n",
    }
    text = (
        "from accel_runtime import Accelerator\ndef fit(chosen, net):\n    accelerator = Accelerator({})\n"
        "    net = accelerator.prepare(net)\n    accelerator.backward(net(x))\n"
    )
    assert said("AM956", files, {**files, "train.py": text.format("")})
    assert not said("AM956", files, {**files, "train.py": text.format("device=chosen['place']")})


def test_a_device_that_is_made_of_itself_may_be_any() -> None:
    """`device = torch.device(device)` asked for itself without end."""
    text = (
        "import torch\nfrom accel_runtime import Accelerator\ndef show(device, x):\n    device = torch.device(device)\n"
        "    return {}\nshow('cpu', x)\ndef fit(net):\n    accelerator = Accelerator()\n"
        "    net = accelerator.prepare(net)\n    accelerator.backward(net(show('cuda:1', x)))\n"
    )
    assert said("AM956", "x = 1\n", text.format("x.to(device)"))
    assert not said("AM956", "x = 1\n", text.format("x"))


def test_a_model_that_is_read_back_onto_the_gpu_it_was_saved_from() -> None:
    head = "import torch\ndef check(rows):\n    net = {}\n    for x in rows:\n        print(net(x.cuda()))\n"
    used = "import helper\n" + TOP.format("") + MODEL + "helper.check(rows)\n"

    def said_of(read: str) -> list[str]:
        files = {"helper.py": head.format(read), "train.py": "import helper\n"}
        return said("AM956", files, {**files, "train.py": used})

    assert said_of("torch.load('a')")
    assert said_of("torch.load('a', weights_only=False).eval()")
    assert not said_of("torch.load('a', map_location='cpu').cuda()")
    assert not said_of("torch.load('a').cuda()")
    assert not said_of("Net()\n    net.load_state_dict(torch.load('a'))")


def test_a_method_of_the_prepared_model_that_moves_it() -> None:
    top = (
        "import torch\nfrom accel_runtime import Accelerator\nclass Net(torch.nn.Module):\n"
        "    def settle(self, place):\n        self.to(place)\nclass Trainer:\n    def train(self, place):\n"
        "        self.net.to(place)\naccelerator = Accelerator()\nnet = accelerator.prepare(Net())\n"
    )
    for model in ("net", "accelerator.unwrap_model(net)"):
        moved = [m for m in said("AM956", "x = 1\n", f"{top}{model}.settle(args.gpu)\n") if "move the prepared" in m]
        assert moved, model
    for line in ("net.train()\n", "other.settle(args.gpu)\n", "net.settle(accelerator.device)\n"):
        assert not [m for m in said("AM956", "x = 1\n", top + line) if "move the prepared" in m], line


SCRIPT = "import torch\nfrom accel_runtime import Accelerator\nclass Net(torch.nn.Module): pass\n"
MADE = "accelerator = Accelerator()\nmodel = accelerator.prepare(Net())\n"
COMPARED = (
    "import torch\nfrom train import {name}\ndevice = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
    "def main():\n    net = torch.nn.Linear(1, 1).to(device)\n    return net\n{then}"
)


@pytest.mark.parametrize(
    ("made", "name", "then", "apart"),
    [
        (f"if __name__ == '__main__':\n    {MADE.replace(chr(10), chr(10) + '    ')}\n", "Net", "main()\n", True),
        (
            f"def main():\n    {MADE.replace(chr(10), chr(10) + '    ')}\nif __name__ == '__main__':\n    main()\n",
            "Net",
            "main()\n",
            True,
        ),
        (
            f"def fit():\n    {MADE.replace(chr(10), chr(10) + '    ')}\nif __name__ == '__main__':\n    fit()\n",
            "Net, fit",
            "fit()\nmain()\n",
            False,
        ),
        (
            f"def fit():\n    {MADE.replace(chr(10), chr(10) + '    ')}\nif __name__ == '__main__':\n    fit()\n",
            "fit",
            "run(fit)\nmain()\n",
            False,
        ),
        (f"def fit():\n    {MADE.replace(chr(10), chr(10) + '    ')}\nfit()\n", "Net", "main()\n", False),
        (f"def fit():\n    {MADE.replace(chr(10), chr(10) + '    ')}\n", "Net", "main()\n", False),
        (MADE, "Net", "main()\n", False),
    ],
)
def test_a_script_that_only_takes_a_class_from_one_that_trains_runs_apart(
    made: str, name: str, then: str, apart: bool
) -> None:
    other = {"compare.py": COMPARED.format(name=name, then=then)}
    found = said("AM956", {"train.py": "x = 1\n", **other}, {"train.py": SCRIPT + made, **other})
    assert bool(found) is not apart


HELPER = "import torch\ndef demo(net):\n    return net.to('cuda:0')\n"


@pytest.mark.parametrize(
    ("helper", "run", "named"),
    [
        ("", "", False),
        ("", "tools.demo(net)\n", True),
        ("", "getattr(tools, name)(net)\n", True),
        ("demo(1)\n", "", True),
        ("if __name__ == '__main__':\n    demo(1)\n", "", False),
    ],
    ids=[
        "nothing calls it",
        "the script calls it",
        "looked up by name",
        "its import calls it",
        "its own main guard does",
    ],
)
def test_a_function_that_the_run_never_reaches_is_not_named(helper: str, run: str, named: bool) -> None:
    files = {"tools.py": HELPER + helper, "show.py": "import tools\ntools.demo(1)\n"}
    after = "import tools\n" + TOP.format("") + run + MODEL
    assert bool(said("AM956", {"train.py": "import tools\n", **files}, {"train.py": after, **files})) is named


def test_only_what_chooses_the_device_tells_the_accelerator_of_it() -> None:
    kept = CHOSEN + "x = x.to(device)\n" + MODEL
    assert said("AM956", "x = 1\n", TOP.format("mixed_precision='fp16'") + kept)
    assert not said("AM956", "x = 1\n", TOP.format("cpu=not torch.cuda.is_available()") + kept)


def test_settings_that_hold_a_device_move_nothing() -> None:
    made = "cfg = SimpleNamespace(device='cuda')\n"
    assert not said("AM956", "x = 1\n", "from types import SimpleNamespace\n" + made + TOP.format("") + MODEL)


def test_devices_that_many_functions_hand_each_other_are_found_soon() -> None:
    """Each function calls all others: ways between them are without number, and functions are not."""
    names = [f"f{n}" for n in range(30)]
    handed = "".join(
        f"def {name}(d):\n    d = {' or '.join(f'{other}(d)' for other in names if other != name)}\n    return d\n"
        for name in names
    )
    kept = handed + "x = x.to(f0('cuda:1'))\n"
    assert said("AM956", "x = 1\n", TOP.format("") + kept + MODEL)


TRAINER = """
import torch
from accel_runtime import Accelerator

class Schedule:
    def __init__(self, net, device):
        self.betas = torch.linspace(0, 1, 10).to(device)
        self.net = net.to(device)

class Trainer:
    def __init__(self, schedule):
        self.accelerator = Accelerator()
        self.net = schedule.net
        self.schedule = schedule
        self.net = self.accelerator.prepare(self.net)

    def train(self, x):
        self.accelerator.backward(self.net(x))

BEFORE
trainer = Trainer(schedule)
trainer.train(x)
"""


def test_what_goes_to_the_first_gpu_before_a_trainer_makes_the_accelerator() -> None:
    (message,) = said(
        "AM956", "x = 1\n", TRAINER.replace("BEFORE", "schedule = Schedule(torch.nn.Linear(1, 1), 'cuda')")
    )
    assert "would go to the first GPU before the Accelerator chooses one" in message
    assert message.startswith(
        "`torch.linspace(0, 1, 10).to(device)`, which `Schedule(torch.nn.Linear(1, 1), 'cuda')` runs"
    )


TOLD = """
import argparse
import torch
from accel_runtime import Accelerator

def train(net, weight, args):
    accelerator = Accelerator(device=args.device)
    net = accelerator.prepare(net)
    accelerator.backward(torch.nn.functional.cross_entropy(net(x), y, weight=weight))

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda:0")
args = parser.parse_args()
net = torch.nn.Linear(2, 2).to(args.device)
weight = torch.ones(2)MOVE
train(net, weight, args)
"""


def test_what_goes_to_the_device_of_an_option_before_the_accelerator_gets_it() -> None:
    (message,) = said("AM956", "x = 1\n", TOLD.replace("MOVE", ".to(args.device)"))
    assert message.startswith("`torch.ones(2).to(args.device)` would go to the first GPU before the Accelerator")
    assert not said("AM956", "x = 1\n", TOLD.replace("MOVE", ""))


AGAIN = """
import torch
from accel_runtime import Accelerator

def show(net, device):
    net(torch.zeros(1).to(device))

def train():
    accelerator = Accelerator()
    net = accelerator.prepare(torch.nn.Linear(1, 1))
    show(net, accelerator.device)

train()
BETWEEN
train()

def apart():
    show(other, torch.device("cuda"))
"""


def test_a_training_before_another_has_an_accelerator_of_its_own() -> None:
    assert not said("AM956", "x = 1\n", AGAIN.replace("BETWEEN", ""))
    (message,) = said("AM956", "x = 1\n", AGAIN.replace("BETWEEN", "apart()"))
    assert message.startswith("`torch.zeros(1).to(device)`, which `apart()` runs, would go to the first GPU")


def test_a_model_on_the_first_gpu_is_taken_to_the_right_one_by_prepare() -> None:
    plain = TRAINER.replace("        self.betas = torch.linspace(0, 1, 10).to(device)\n", "        self.step = 0\n")
    assert not said("AM956", "x = 1\n", plain.replace("BEFORE", "schedule = Schedule(torch.nn.Linear(1, 1), 'cuda')"))


def test_an_option_that_the_script_sets_before_anything_reads_it() -> None:
    parsed = TOP.format("") + "p = argparse.ArgumentParser()\np.add_argument('--device')\nargs = p.parse_args()\n{}"
    use = MODEL + "x = x.to(args.device)\n"
    assert not said("AM956", "x = 1\n", parsed.format("args.device = accelerator.device\n") + use)
    for line in ("if args.fast:\n    args.device = accelerator.device\n", "args.device = args.device or 'cuda'\n"):
        assert said("AM956", "x = 1\n", parsed.format(line) + use)


@pytest.mark.parametrize("others", range(8))
def test_of_several_functions_that_may_run_the_first_in_the_text_is_named(others: int) -> None:
    kind = "class K{0}:\n    def __init__(self):\n        self.x = torch.zeros({0}).cuda()\n" + "y = 1\n" * others
    kinds = "".join(kind.format(number) for number in range(5))
    made = "held = {1: K3, 2: K1, 3: K4, 4: K0, 5: K2}[name]()\naccelerator = Accelerator()\nnet = accelerator.prepare(net)\n"
    (message,) = said("AM956", "x = 1\n", TOP.replace("accelerator = Accelerator({})\n", "") + kinds + made)
    assert message.startswith("`torch.zeros(0).cuda()`, which `{1: K3")
