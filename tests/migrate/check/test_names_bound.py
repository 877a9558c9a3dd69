"""AM950: every name is bound where it is read."""

from __future__ import annotations

import pytest

from tests.migrate.check.reading import said

MADE = "from accel_runtime import Accelerator\n"


def test_an_accelerator_that_is_read_above_the_line_that_makes_it() -> None:
    (message,) = said("AM950", "print(1)\n", MADE + "accelerator.print(1)\naccelerator = Accelerator()\n")
    assert message == "`accelerator` may not be bound yet in `accelerator.print(1)`"


def test_an_accelerator_made_under_a_condition_or_in_a_try() -> None:
    before = "def main(args):\n    print(args)\n"
    guarded = "def main(args):\n    if args.many:\n        accelerator = Accelerator()\n    accelerator.print(args)\n"
    assert said("AM950", before, MADE + guarded)
    tried = "def main(args):\n    try:\n        accelerator = Accelerator()\n    finally:\n        accelerator.print(args)\n"
    assert said("AM950", before, MADE + tried)
    right = "def main(args):\n    accelerator = Accelerator()\n    try:\n        go()\n    finally:\n        print(accelerator)\n"
    assert not said("AM950", before + "def go(): pass\n", MADE + right + "def go(): pass\n")


def test_a_name_that_was_unbound_on_some_path_before_is_not_our_news() -> None:
    before = "for batch in []:\n    loss = batch\nprint(loss)\n"
    assert not said(
        "AM950", before, MADE + "accelerator = Accelerator()\n" + before.replace("print", "accelerator.print")
    )


def test_a_name_that_was_unbound_on_some_path_to_a_call_before_is_not_our_news() -> None:
    chosen = "import sys\nif sys.argv[1] == 'a':\n    moves = 1\nelif sys.argv[1] == 'b':\n    moves = 2\n"
    fit = "def fit():\n    print(moves)\n"
    prepared = "accelerator = Accelerator()\nmoves = accelerator.prepare(moves)\n"
    assert not said("AM950", chosen + fit + "fit()\n", MADE + chosen + fit + prepared + "fit()\n")
    assert said("AM950", chosen + fit + "fit()\n", MADE + prepared + chosen + fit + "fit()\n")
    otherwise = "if sys.argv[2]:\n    moves = 3\nelse:\n    moves = 4\n"
    before = chosen + fit + "{}" + otherwise + "fit()\n"
    assert said("AM950", before.format(""), MADE + before.format(prepared))
    assert said("AM950", before.format("") + "fit()\n", MADE + before.format(prepared) + "fit()\n")


def test_a_name_that_nothing_binds_any_more() -> None:
    before = "import torch\ndevice = torch.device('cpu')\ndef move(x):\n    return x.to(device)\n"
    (message,) = said("AM950", before, "import torch\ndef move(x):\n    return x.to(device)\n")
    assert "nothing binds `device`" in message


def test_an_import_that_is_used_and_gone() -> None:
    assert said("AM950", "import os\nprint(os.sep)\n", "print(os.sep)\nx = 1\n")
    assert not said("AM950", "from helpers import *\nshow(1)\n", "from helpers import *\nshow(2)\n")


def test_a_star_import_brings_no_name_that_was_not_read_before() -> None:
    before = "from os import mkdir\nfrom helpers import *\nmkdir('run')\nshow(1)\n"
    assert said("AM950", before, before.replace("mkdir('run')", "makedirs('run', exist_ok=True)"))
    assert not said("AM950", before, before.replace("mkdir('run')", "show(mkdir('run'), len('x'))"))


def test_a_function_that_is_called_before_what_it_reads() -> None:
    before = "def show(x):\n    print(x)\n\nshow(1)\ndevice = 1\n"
    after = "def show(x):\n    accelerator.print(x)\n\nshow(1)\naccelerator = Accelerator()\ndevice = 1\n"
    (message,) = said("AM950", before, MADE + after)
    assert message.startswith("show() reads `accelerator`")
    through = "def outer():\n    show(1)\n" + after.replace("\nshow(1)\n", "\nouter()\n")
    assert said("AM950", before, MADE + through)
    method = (
        "class Log:\n    def show(self, x):\n        accelerator.print(x)\n\n"
        "log = Log()\nlog.show(1)\naccelerator = Accelerator()\n"
    )
    assert said("AM950", "log = print\nlog.show(1)\n", MADE + method)


def test_a_function_that_is_called_once_all_is_bound() -> None:
    before = "def show(x):\n    print(x)\n\nif __name__ == '__main__':\n    show(1)\n"
    after = (
        "def show(x):\n    accelerator.print(x)\n\nif __name__ == '__main__':\n"
        "    accelerator = Accelerator()\n    show(1)\n"
    )
    assert not said("AM950", before, MADE + after)


def test_a_name_of_the_main_guard_is_unknown_to_files_that_import_the_function() -> None:
    helper = "def show(x):\n    print(x)\n\nif __name__ == '__main__':\n    show(1)\n"
    changed = MADE + (
        "def show(x):\n    accelerator.print(x)\n\nif __name__ == '__main__':\n"
        "    accelerator = Accelerator()\n    show(1)\n"
    )
    other = "from tools import show\nshow(2)\n"
    (message,) = said("AM950", {"tools.py": helper, "run.py": other}, {"tools.py": changed, "run.py": other})
    assert message == "show() reads `accelerator`, which is bound only when tools.py is run as a script"


def test_an_accelerator_made_in_a_loop() -> None:
    before = "for epoch in range(3):\n    print(epoch)\n"
    after = MADE + "for epoch in range(3):\n    accelerator = Accelerator()\n    accelerator.print(epoch)\n"
    assert said("AM950", before, after) == ["the Accelerator would be made in a loop, once per round"]


def test_a_name_that_another_file_imports() -> None:
    before = {"config.py": "device = 1\nother = 2\n", "run.py": "from config import device\nprint(device)\n"}
    after = {**before, "config.py": "other = 2\n"}
    (message,) = said("AM950", before, after)
    assert message == "`device` is imported from config.py, which no longer binds it"
    by_module = {**before, "run.py": "import config\nprint(config.device)\n"}
    assert said("AM950", by_module, {**by_module, "config.py": "other = 2\n"})


def test_a_name_that_another_file_gets_by_a_star() -> None:
    before = {"engine.py": "import torch\nrate = 1\n", "run.py": "from engine import *\nprint(torch, rate)\n"}
    (message,) = said("AM950", before, {**before, "engine.py": "rate = 1\n"})
    assert message == "`torch` is imported from engine.py, which no longer binds it"
    by_both = {**before, "run.py": "from other import *\n" + before["run.py"], "other.py": "import torch\n"}
    assert not said("AM950", by_both, {**by_both, "engine.py": "rate = 1\n"})
    by_itself = {**before, "run.py": "import torch\n" + before["run.py"]}
    assert not said("AM950", by_itself, {**by_itself, "engine.py": "rate = 1\n"})


def test_a_name_bound_and_read_under_one_condition() -> None:
    before = "def save(epoch, main):\n    if main and epoch % 2 == 0:\n        write(1)\ndef write(x): ...\n"
    after = (
        "def save(epoch, main):\n    if epoch % 2 == 0:\n        state = collect()\n"
        "    if main and epoch % 2 == 0:\n        write(state)\ndef write(x): ...\ndef collect(): ...\n"
    )
    assert not said("AM950", before, after)
    assert said("AM950", before, after.replace("    if main and", "    epoch += 1\n    if main and"))
    assert said("AM950", before, after.replace("main and epoch % 2 == 0", "main"))


def test_a_name_that_the_original_reads_under_the_condition_that_binds_it_is_bound_there_alone() -> None:
    before = "if noisy:\n    noiser = Net()\nif noisy:\n    fit(noiser)\n"
    after = "if noisy:\n    noiser = Net()\n{}noiser = fit(noiser)\nif noisy:\n    fit(noiser)\n"
    assert said("AM950", before, after.format(""))
    assert not said("AM950", before, after.format("if noisy:\n    "))
    assert not said("AM950", before.replace("\nif noisy:\n    fit", "\nfit"), after.format(""))


def test_an_accelerator_that_a_method_keeps_is_not_there_while_the_object_is_made() -> None:
    before = "class T:\n    def __init__(self, net):\n        self.net = net\n        self.up()\n"
    before += "    def up(self): ...\n    def run(self): ...\n"
    made = before.replace("def run(self): ...", "def run(self):\n        self.accelerator = Accelerator()")
    after = "from accel_runtime import Accelerator\n" + made
    assert not said("AM950", before, after)
    assert said("AM950", before, after.replace("= net\n", "= net.to(self.accelerator.device)\n"))
    assert said("AM950", before, after.replace("def up(self): ...", "def up(self):\n        self.accelerator.print(1)"))


def test_the_accelerator_in_what_torchscript_compiles() -> None:
    net = (
        "import torch\nfrom torch import jit, nn\naccelerator = Accelerator()\n\nclass Net({base}):\n    {mark}\n"
        "    def forward(self, x):\n        return x + torch.zeros(3){move}\n\n{after}"
    )
    by_hand = {"base": "jit.ScriptModule", "mark": "@jit.script_method", "after": ""}
    whole = {"base": "nn.Module", "mark": "training: bool", "after": "net = torch.jit.script(Net())\n"}
    plain = {"base": "nn.Module", "mark": "training: bool", "after": "net = Net()\n"}
    for parts, found in ((by_hand, True), (whole, True), (plain, False)):
        before = net.format(move=".cuda()", **parts).replace("accelerator = Accelerator()", "count = 1")
        after = MADE + net.format(move=".to(accelerator.device)", **parts)
        assert bool(said("AM950", before, after)) is found


REPORT = """
from accel_runtime import Accelerator
import torch.distributed as dist

def report(values):
    if dist.get_rank() == 0:
        mean, best = sum(values), max(values)
    else:
        mean = None
        best = None
    return {given}

accelerator = Accelerator()
{read}
"""


@pytest.mark.parametrize(
    ("given", "read", "fails"),
    [
        ("mean", "found = report([1])\nprint(found[0])", True),
        ("mean, best", "mean, best = report([1])\nprint(best + 1)", True),
        ("mean, best", "mean, best = report([1])\nrows = []\nrows.append(best.real)", True),
        ("mean", "found = report([1])\nif found is not None:\n    print(found[0])", False),
        ("mean", "found = report([1])\nif accelerator.is_main_process:\n    print(found[0])", False),
        ("mean", "found = report([1])\nprint(found)", False),
        ("values", "found = report([1])\nprint(found[0])", False),
    ],
)
def test_what_one_process_alone_works_out_is_not_read_by_all(given: str, read: str, fails: bool) -> None:
    after = REPORT.format(given=given, read=read)
    assert bool(said("AM950", "x = 1\n", after)) is fails
