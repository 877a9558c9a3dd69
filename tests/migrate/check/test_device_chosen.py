"""AM964: what chose between the CPU and a GPU still decides."""

from __future__ import annotations

import pytest

from tests.migrate.check.reading import said

MADE = "from accel_runtime import Accelerator\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = y.to('cuda' if args.gpu else 'cpu')\n", "accelerator = Accelerator()\nx = y.to(accelerator.device)\n"),
        (
            "spot = torch.device('cpu' if config.host_only else 'cuda')\n",
            "accelerator = Accelerator()\nspot = accelerator.device\n",
        ),
        (
            "wanted = flags.cuda and torch.cuda.is_available()\nx = y.to('cuda' if wanted else 'cpu')\n",
            "accelerator = Accelerator()\nx = y\n",
        ),
    ],
)
def test_an_option_that_the_accelerator_is_not_told(before: str, after: str) -> None:
    (message,) = said("AM964", before, MADE + after)
    assert "would not know of it" in message


def test_two_conditions_that_become_one_device() -> None:
    before = "a = b.to('cuda' if mode == 'all' else 'cpu')\nplace = 'cpu' if mode == 'none' else 'cuda'\n"
    after = (
        MADE
        + "accelerator = Accelerator(cpu=mode == 'none')\na = b.to(accelerator.device)\nplace = accelerator.device\n"
    )
    (message,) = said("AM964", before, after)
    assert "different conditions" in message


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "device = 'cuda' if torch.cuda.is_available() else 'cpu'\n",
            "accelerator = Accelerator()\ndevice = accelerator.device\n",
        ),
        (
            "use = not args.no_cuda and torch.cuda.is_available()\ndevice = 'cuda' if use else 'cpu'\n",
            "accelerator = Accelerator(cpu=args.no_cuda)\n",
        ),
        (
            "a = b.to('cuda' if mode != 'none' else 'cpu')\nplace = 'cpu' if mode == 'none' else 'cuda'\n",
            "accelerator = Accelerator(cpu=mode == 'none')\na = b\nplace = accelerator.device\n",
        ),
        (
            "a = b.to('cuda' if mode == 'all' else 'cpu')\nplace = 'cpu' if mode == 'none' else 'cuda'\n",
            "accelerator = Accelerator(cpu=mode == 'none')\na = b.to('cuda' if mode == 'all' else 'cpu')\n",
        ),
    ],
)
def test_choices_that_still_decide(before: str, after: str) -> None:
    assert not said("AM964", before, MADE + after)


def test_a_number_of_a_gpu_that_the_accelerator_is_not_told() -> None:
    before = "import torch\ntorch.cuda.set_device({})\nnet.cuda()\n"
    after = MADE + "import torch\naccelerator = Accelerator({})\nnet = accelerator.prepare(net)\n"
    assert said("AM964", before.format("args.gpus[0]"), after.format("cpu=not args.cuda"))
    assert not said("AM964", before.format("args.gpu"), after.format("device=f'cuda:{args.gpu}'"))
    for first in ("0", "'cuda'", "'cuda:0'", "torch.device('cuda', 0)"):
        assert not said("AM964", before.format(first), after.format(""))
    for other in ("1", "'cuda:1'", "torch.device('cuda', 1)"):
        assert said("AM964", before.format(other), after.format(""))
        assert said("AM964", f"gpu = {other}\n" + before.format("gpu"), after.format("device='cuda:2'"))
        assert not said("AM964", f"gpu = {other}\n" + before.format("gpu"), after.format("device='cuda:1'"))
    assert not said("AM964", before.format("spot"), after.format("") + "spot = accelerator.device\n")
    assert not said("AM964", "import torch.distributed\n" + before.format("args.gpu"), after.format(""))
    assert not said("AM964", before.format("args.gpu"), "torch.cuda.set_device(args.gpu)\n" + after.format(""))


def test_a_number_of_a_gpu_under_a_name_is_what_the_name_is_set_to() -> None:
    before = "import torch\nspot = {}\ntorch.cuda.set_device(spot)\nnet.to(spot)\n"
    after = MADE + "import torch\naccelerator = Accelerator({})\nnet = accelerator.prepare(net)\n"
    assert not said("AM964", before.format("torch.device('cuda:0')"), after.format(""))
    told = after.format("device=f'cuda:{args.gpu}'")
    assert not said("AM964", before.format("torch.device(f'cuda:{args.gpu}')"), told)
    assert said("AM964", before.format("torch.device(f'cuda:{args.gpu}')"), after.format(""))
    assert said("AM964", before.format("chosen.device"), after.format(""))
    chosen = "torch.device('cuda:0')\nif args.second:\n    spot = torch.device('cuda:1')"
    assert said("AM964", before.format(chosen), after.format(""))
    assert said(
        "AM964", "import torch\ndef fit(device):\n    torch.cuda.set_device(device)\n    net.cuda()\n", after.format("")
    )
    assert said(
        "AM964", "from setup import spot\nimport torch\ntorch.cuda.set_device(spot)\nnet.cuda()\n", after.format("")
    )


def test_a_move_to_a_gpu_by_its_number_that_the_accelerator_is_not_told() -> None:
    before = "import torch\nnet.cuda({})\n"
    after = MADE + "import torch\naccelerator = Accelerator({})\nnet = accelerator.prepare(net)\n"
    assert said("AM964", before.format("args.gpu"), after.format(""))
    assert said("AM964", "GPU = args.gpu\n" + before.format("GPU"), after.format(""))
    assert not said("AM964", "GPU = args.gpu\n" + before.format("GPU"), after.format("device=f'cuda:{GPU}'"))
    assert not said("AM964", "spot = torch.device('cuda:0')\n" + before.format("spot"), after.format(""))
    for plain in ("", "0", "non_blocking=True"):
        assert not said("AM964", before.format(plain), after.format(""))
    assert not said("AM964", before.format("spot"), after.format("") + "spot = accelerator.device\n")
    assert not said("AM964", "import torch.distributed\n" + before.format("args.gpu"), after.format(""))


def test_a_number_that_only_tells_whether_to_use_the_cpu() -> None:
    before = "import torch\nif args.gpu:\n    torch.cuda.set_device(args.gpu)\nnet.cuda()\n"
    after = MADE + "import torch\naccelerator = Accelerator(cpu=not args.gpu)\nnet = accelerator.prepare(net)\n"
    assert said("AM964", before, after)


@pytest.mark.parametrize("place", ["chosen['place']", "chosen.get('place')", "torch.device(chosen['run']['place'])"])
def test_a_device_of_a_configuration_that_the_accelerator_is_not_told(place: str) -> None:
    before = f"import torch\ndef fit(chosen, x):\n    spot = {place}\n    net(x.to(spot))\n"
    after = MADE + "import torch\ndef fit(chosen, x):\n    accelerator = Accelerator({})\n    net(x)\n"
    assert said("AM964", before, after.format(""))
    assert not said("AM964", before, after.format(f"device={place}"))


ASKED = """
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true")
args = parser.parse_args()
"""


@pytest.mark.parametrize(
    "chosen",
    [
        "self.spot = torch.device('cuda' if torch.cuda.is_available() and not args.no_cuda else 'cpu')",
        "self.use = torch.cuda.is_available() and not args.no_cuda\n        self.spot = 'cuda' if self.use else 'cpu'",
        "self.spot = 'cuda'\n        if args.no_cuda:\n            self.spot = 'cpu'",
        "self.spot = picked(args.no_cuda)",
    ],
)
def test_an_option_that_decides_on_moves_from_afar(chosen: str) -> None:
    picked = "def picked(plain):\n    if plain:\n        return torch.device('cpu')\n    return torch.device('cuda')\n"
    before = f"{ASKED}{picked}class Work:\n    def __init__(self):\n        {chosen}\n    def run(self, x):\n        net(x{{}})\n"
    left = "\naccelerator = Accelerator({})\n"
    (message,) = said("AM964", before.format(".to(self.spot)"), MADE + before.format("") + left.format(""))
    assert message.startswith("the option --no_cuda decides on `x.to(self.spot)`")
    told = MADE + before.format("") + left.format("cpu=args.no_cuda")
    assert not said("AM964", before.format(".to(self.spot)"), told)


def test_an_option_that_decides_whether_to_move() -> None:
    used = "use = not args.no_cuda and torch.cuda.is_available()\n"
    before = f"{ASKED}{used}if use:\n    net.cuda()\n"
    after = f"{MADE}{ASKED}{used}accelerator = Accelerator({{}})\n"
    assert said("AM964", before, after.format(""))
    assert not said("AM964", before, after.format("cpu=not use"))
    assert not said("AM964", before.replace("not args.no_cuda and ", ""), after.format(""))


def test_a_move_that_reads_as_before_may_be_the_accelerators() -> None:
    """What chose its device is taken over with the device."""
    before = (
        "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--cpu')\nargs = p.parse_args()\n"
        "if args.cpu:\n    device = 'cpu'\nelse:\n    device = 'cuda'\nnet = Net().to(device)\n"
        "net(x.to(device)).sum().backward()\n"
    )
    chosen = "if args.cpu:\n    device = 'cpu'\nelse:\n    device = 'cuda'\n"
    taken = (
        before.replace(chosen, "accelerator = Accelerator({})\ndevice = accelerator.device\n")
        .replace("import argparse", "from accel_runtime import Accelerator\nimport argparse")
        .replace("net(x", "net = accelerator.prepare(net)\nnet(x")
    )
    assert said("AM964", before, taken.replace("{}", ""))
    assert not said("AM964", before, taken.replace("{}", "cpu=args.cpu"))


GONE = "import os\nimport torch\n{}\nnet = Net().to(device)\n"
LEFT = MADE + "import os\nimport torch\n{}\naccelerator = Accelerator()\nnet = accelerator.prepare(Net())\n"


@pytest.mark.parametrize(
    "chosen",
    [
        "def pick(n):\n    return torch.device('cuda' if n else 'cpu'), n\ndevice, n = pick(count())",
        "def pick():\n    return os.environ.get('PLACE', 'cpu'), 1\n[device, n] = pick()",
        "device, n = ('cuda' if os.environ.get('GPUS') else 'cpu'), 1",
        "device: str = 'cuda' if os.environ.get('GPUS') else 'cpu'",
        "for device in ['cpu']:\n    pass",
        "device = None",
        "device = 'cpu'\nif os.environ.get('GPUS'):\n    device = 'cuda'",
        "def pick():\n    if torch.cuda.is_available() and not HOST:\n        return 'cuda'\n    return 'cpu'\ndevice = pick()",
        "def pick():\n    if torch.cuda.device_count() == 0:\n        return 'cuda'\n    return 'cpu'\ndevice = pick()",
        "if torch.cuda.is_available():\n    device = settings()\nelse:\n    device = 'cpu'",
    ],
)
def test_a_device_that_is_not_proven_to_be_the_machines_gpu(chosen: str) -> None:
    (message,) = said("AM964", GONE.format(chosen), LEFT.format(chosen))
    assert "is not known to be a GPU wherever there is one" in message or "would not know of it" in message


@pytest.mark.parametrize(
    "chosen",
    [
        "device = 'cuda'",
        "device: str = 'cuda' if torch.cuda.is_available() else 'cpu'",
        "device = 'cpu'\nif torch.cuda.is_available():\n    device = 'cuda'",
        "device = 'cpu'\nif torch.cuda.is_available():\n    device = 'cuda'\nelif FAST:\n    device = None",
        "def pick():\n    if torch.cuda.is_available():\n        return 'cuda'\n    return 'cpu'\ndevice = pick()",
        "def pick():\n    if not torch.cuda.is_available():\n        return None\n    return 'cuda'\ndevice = pick()",
        "def pick():\n    if torch.cuda.device_count() == 0:\n        return 'cpu'\n    return 'cuda'\ndevice = pick()",
    ],
)
def test_a_device_that_is_the_machines_gpu_on_every_path(chosen: str) -> None:
    assert not said("AM964", GONE.format(chosen), LEFT.format(chosen))
