"""AM965: `.module` is not there, or on several processes only."""

from __future__ import annotations

import pytest

from tests.migrate.check.reading import said

MADE = "from accel_runtime import Accelerator\naccelerator = Accelerator()\n"
TOP = f"{MADE}net, opt = accelerator.prepare(Net(), SGD())\n"
PEER = TOP.replace("accel_runtime", "accelerate")


@pytest.mark.parametrize(
    "read",
    [
        "keep(net.module)\n",
        "if several:\n    keep(net.module)\n",
        "def save(it):\n    keep(it.module.state_dict())\nsave(net)\n",
        "class Saver:\n    def __init__(self, it):\n        self.it = it\n"
        "    def save(self):\n        keep(self.it.module)\nSaver(net).save()\n",
    ],
)
def test_a_wrapper_that_one_process_does_not_have(read: str) -> None:
    assert said("AM965", "x = 1\n", TOP + read)
    assert said("AM965", "x = 1\n", PEER + read)


@pytest.mark.parametrize(
    "read",
    [
        "keep(accelerator.unwrap_model(net))\n",
        "if hasattr(net, 'module'):\n    keep(net.module)\n",
        "keep(net.module if isinstance(net, DataParallel) else net)\n",
        "try:\n    keep(net.module)\nexcept AttributeError:\n    keep(net)\n",
        "keep(other.module)\n",
    ],
)
def test_a_wrapper_that_is_asked_for_first(read: str) -> None:
    assert not said("AM965", "x = 1\n", TOP + read)
    assert not said("AM965", "x = 1\n", PEER + read)


@pytest.mark.parametrize("test", ["accelerator.num_processes > 1", "args.DDP", "USE_DDP"])
def test_a_wrapper_by_the_number_of_processes_is_there_in_accelerate_alone(test: str) -> None:
    read = f"if {test}:\n    keep(net.module)\n"
    assert said("AM965", "x = 1\n", TOP + read)
    assert not said("AM965", "x = 1\n", PEER + read)


@pytest.mark.parametrize(
    "asked", ["net.join()", "net.register_comm_hook(None, hook)", "x.to(net.device)", "net.no_sync"]
)
def test_what_only_ddp_has(asked: str) -> None:
    before = "from torch.nn.parallel import DistributedDataParallel as Wrapped\nnet = Wrapped(Net())\n"
    assert said("AM965", before, f"{TOP}use({asked})\n")
    assert said("AM965", before, f"{PEER}use({asked})\n"), "on one process"
    assert not said("AM965", before, f"{PEER}if accelerator.num_processes > 1:\n    use({asked})\n")
    assert not said("AM965", "net = Net()\n", f"{TOP}use({asked})\n"), "the model's own"
    assert not said("AM965", before, f"{TOP}use({asked.replace('net', 'other')})\n")


def test_a_method_of_the_bare_model_that_is_handed_the_wrapper() -> None:
    assert said("AM965", "x = 1\n", PEER + "keep(accelerator.unwrap_model(net).pack(net, opt))\n")
    assert said("AM965", "x = 1\n", PEER + "keep(accelerator.unwrap_model(net).pack(model=net))\n")
    assert not said("AM965", "x = 1\n", PEER + "keep(accelerator.unwrap_model(net).pack(opt))\n")
    assert not said("AM965", "x = 1\n", TOP + "keep(accelerator.unwrap_model(net).pack(net, opt))\n")


def test_a_tensor_that_is_shaped_for_the_gpus_of_data_parallel() -> None:
    wrapped = "from torch import nn\nmodel = nn.DataParallel(model, device_ids=list(range(args.num_gpu)))\n"
    made = "from accel_runtime import Accelerator\naccelerator = Accelerator()\n"
    for line in ("p = p.repeat(args.num_gpu, 1)\n", "p = p.view(num_gpu * 2, -1)\n"):
        assert said("AM965", wrapped + line, made + line)
        assert not said("AM965", wrapped + line, wrapped + made + line)
    for line in ("print(args.num_gpu)\n", "size = 4 * args.num_gpu\n", "p = p.repeat(args.way, 1)\n"):
        assert not said("AM965", wrapped + line, made + line)


def test_what_was_set_on_a_data_parallel_and_never_reached_the_model() -> None:
    before = "from torch import nn\nnet = {}(Net())\nnet.{} = 1\n"
    assert said("AM965", before.format("nn.DataParallel", "rate"), TOP + "net.rate = 1\n")
    assert not said("AM965", before.format("nn.DataParallel", "module.rate"), TOP + "net.rate = 1\n")
    assert not said("AM965", before.format("Wrapped", "rate"), TOP + "net.rate = 1\n")


def test_what_is_prepared_may_be_a_data_parallel_of_another_file() -> None:
    files = {
        "build.py": "from torch import nn\ndef build(many):\n    net = Net()\n    return nn.DataParallel(net) if many else net\n",
        "train.py": "import build\n",
    }
    made = "from accel_runtime import Accelerator\naccelerator = Accelerator()\n"
    used = made + "from build import build\nboth = {'net': build(2)}\nnet = accelerator.prepare(both['net'])\n"
    assert said("AM965", files, {**files, "train.py": used})
    later = made + "net = accelerator.prepare(Net())\nfrom torch import nn\nother = nn.DataParallel(Net())\n"
    assert not said("AM965", files, {**files, "train.py": later})


@pytest.mark.parametrize(("model", "refused"), [("net", True), ("other", False)])
def test_a_prepared_model_that_a_function_spreads_over_the_gpus(model: str, refused: bool) -> None:
    run = f"import torch\ny = torch.nn.parallel.data_parallel({model}, x)\n"
    assert bool(said("AM965", "x = 1\n", TOP + run)) is refused


DDP = "from torch.nn.parallel import DistributedDataParallel\nnet = DistributedDataParallel(Net())\n"


def test_an_attribute_that_the_original_asked_of_the_model_in_the_wrapper() -> None:
    assert not said("AM965", DDP + "keep(net.module.device)\n", TOP + "keep(net.device)\n")
    assert said("AM965", DDP + "keep(net.device)\n", TOP + "keep(net.device)\n")


def test_a_model_of_transformers_says_its_device_as_the_wrapper_did() -> None:
    made = "from transformers import AutoModel\nnet = AutoModel.from_pretrained('x')\n"
    prepared = "from accel_runtime import Accelerator\naccelerator = Accelerator()\nnet, opt = accelerator.prepare(net, SGD())\n"
    assert not said("AM965", DDP + "keep(net.device)\n", made + prepared + "keep(net.device)\n")
    assert said("AM965", DDP + "net.join()\n", made + prepared + "net.join()\n")


@pytest.mark.parametrize(
    ("called", "refused"),
    [
        ("nets.__dict__[kind]", True),
        ("nets.__dict__.get(kind)", True),
        ("vars(nets)[kind]", True),
        ("getattr(nets, kind)", True),
        ("getattr(nets.deep, kind)", True),
        ("globals()[kind]", True),
        ("TABLE[kind]", True),
        ("TABLE.get(kind, plain)", True),
        ("getattr(torch.nn, kind)", False),
        ("nets.plain", False),
    ],
)
def test_what_is_prepared_may_be_a_data_parallel_of_a_function_that_is_looked_up(called: str, refused: bool) -> None:
    files = {
        "nets/__init__.py": "from .deep import *\nTABLE = {'wide': wide}\n",
        "nets/deep.py": "from torch import nn\ndef wide():\n    return nn.DataParallel(Net())\ndef plain():\n    return Net()\n",
        "train.py": "import nets\n",
    }
    used = (
        "import torch\nimport nets\nfrom nets import *\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\n"
        f"net = accelerator.prepare({called}())\n"
    )
    assert bool(said("AM965", files, {**files, "train.py": used})) is refused


def test_a_part_that_is_taken_out_of_a_wrapper_which_is_gone() -> None:
    before = "import torch\nnet.front = torch.nn.DataParallel(net.front)\nnet.front = net.front.module\n"
    top = "import torch\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\n"
    assert said("AM965", before, top + "net = accelerator.prepare(net)\nnet.front = net.front.module\n")
    assert not said("AM965", before, top + "net = accelerator.prepare(net)\n")
    asked = "if isinstance(net.front, torch.nn.DataParallel):\n    net.front = net.front.module\n"
    assert not said("AM965", before + asked, top + "net = accelerator.prepare(net)\n" + asked)


def test_what_is_set_on_a_model_before_it_is_wrapped_is_the_models_own() -> None:
    wrap = "import torch\nif small:\n    net.front = make()\nelse:\n    net = torch.nn.DataParallel(net)\n"
    top = "import torch\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\n"
    after = top + "if small:\n    net.front = make()\nnet = accelerator.prepare(net)\n"
    assert not said("AM965", wrap, after)
    assert said("AM965", wrap + "net.rate = 1\n", after + "net.rate = 1\n")


@pytest.mark.parametrize("wrapper", ["nn.DataParallel", "nn.parallel.DistributedDataParallel"])
def test_what_a_wrapper_has_is_asked_for_before_prepare(wrapper: str) -> None:
    wrapped = f"if args.many:\n    net = {wrapper}(net)\n    print(net.device_ids)\n"
    before = f"from torch import nn\nnet = Net()\n{wrapped}"
    after = f"{MADE}net = Net()\nif args.many:\n    {{}}\nnet = accelerator.prepare(net)\n"
    assert said("AM965", before, after.format("print(net.device_ids)"))
    assert not said("AM965", before, after.format("print(net)"))
    assert not said(
        "AM965", before.replace("net.device_ids", "other.device_ids"), after.format("print(other.device_ids)")
    )
    assert not said("AM965", "net = Net()\n", after.format("print(net.device_ids)")), "the model's own"


@pytest.mark.parametrize("wrapper", ["DistributedDataParallel", "DataParallel"])
def test_module_of_what_nothing_prepares(wrapper: str) -> None:
    wrapped = f"from torch.nn.parallel import {wrapper} as Wrapped\nteacher = Wrapped(Net())\n"
    bare = f"{TOP}teacher = Net()\n"
    assert said("AM965", f"{wrapped}use(teacher.module.start())\n", f"{bare}use(teacher.module.start())\n")
    assert not said("AM965", f"{wrapped}use(teacher.module.start())\n", f"{bare}use(teacher.start())\n")
    assert not said("AM965", "teacher = Net()\nuse(teacher.module)\n", f"{bare}use(teacher.module)\n"), "its own"
    handed = wrapped.replace("teacher = Wrapped(Net())", "def wrap(it):\n    return Wrapped(it)\nteacher = wrap(Net())")
    assert said("AM965", f"{handed}use(teacher.module.start())\n", f"{bare}use(teacher.module.start())\n")
    idle = "def look(teacher):\n    return teacher.module\n"
    assert not said("AM965", f"{idle}{wrapped}use(teacher.module.start())\n", f"{idle}{bare}use(teacher.start())\n")
    asked = "use(teacher.module if hasattr(teacher, 'module') else teacher)\n"
    assert not said("AM965", wrapped + asked, bare + asked)
