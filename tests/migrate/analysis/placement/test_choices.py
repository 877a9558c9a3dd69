"""The GPU that the user chooses by its number is the Accelerator's on one process."""

from __future__ import annotations

import pytest

from tests.migrate.rules.verbs import migrated, unchanged

SCRIPT = """
import argparse
import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", {kind})
args = parser.parse_args()
{named}
loader = DataLoader(data, batch_size=4)
model = torch.nn.Linear(4, 1).cuda({number})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    loss = model(x.cuda({number})).mean()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("named", "number"), [("", "args.gpu"), ("GPU = args.gpu", "GPU")])
def test_a_number_that_always_is_one_names_the_device(named: str, number: str) -> None:
    text = migrated(SCRIPT.format(kind="type=int, default=0", named=named, number=number))
    assert f'accelerator = Accelerator(device=f"cuda:{{{number}}}")\n' in text
    assert ".cuda(" not in text


@pytest.mark.parametrize(
    "kind", ["type=int", "type=int, default=None", "default='0'", "type=int, nargs='+', default=0"]
)
def test_what_may_be_no_number_leaves_the_loop(kind: str) -> None:
    assert "chooses the GPU" in unchanged(SCRIPT.format(kind=kind, named="", number="args.gpu"))


KINDS = """
import argparse
import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true")
parser.add_argument("--no-mps", action="store_true")
parser.add_argument("--host", action="store_true")
args = parser.parse_args()
{chosen}
loader = DataLoader(data, batch_size=4)
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    loss = model(x.to(device)).mean()
    loss.backward()
    optimizer.step()
"""
CUDA = "not args.no_cuda and torch.cuda.is_available()"
MPS = "not args.no_mps and torch.backends.mps.is_available()"
BRANCHES = """if {}:
    device = torch.device("cuda")
elif {}:
    device = torch.device("mps")
else:
    device = torch.device("cpu")"""
BELOW = """device = "cpu"
if {}:
    device = "cuda"
elif {}:
    device = torch.device("mps")"""
INLINE = 'device = torch.device("cuda" if {} else "mps" if {} else "cpu")'


def made(chosen: str) -> str:
    """The line that creates the Accelerator, of a script that chooses its device so."""
    text = migrated(KINDS.format(chosen=chosen))
    return next(line for line in text.splitlines() if line.startswith("accelerator = "))


@pytest.mark.parametrize("choice", [BRANCHES, INLINE, BELOW])
@pytest.mark.parametrize("name", ["args.cuda", "use_cuda"])
def test_an_option_for_each_kind_of_device_keeps_the_tests_of_the_script(choice: str, name: str) -> None:
    """No machine has both kinds, so `--no-cuda` alone is the CPU where there is CUDA."""
    chosen = f"{name} = {CUDA}\nuse_mps = {MPS}\n" + choice.format(name, "use_mps")
    assert made(chosen) == f"accelerator = Accelerator(cpu=not {name} and not use_mps)"
    text = migrated(KINDS.format(chosen=chosen))
    assert text.index(f"use_mps = {MPS}") < text.index("accelerator = ")


def test_options_asked_in_place_are_kept_with_what_is_there() -> None:
    text = "".join(migrated(KINDS.format(chosen=BRANCHES.format(CUDA, MPS))).split())
    assert "".join(f"Accelerator(cpu=not({CUDA})and not({MPS}))".split()) in text.replace(",)", ")")


@pytest.mark.parametrize("choice", [BRANCHES, INLINE, BELOW])
def test_kinds_that_nothing_but_the_machine_decides_on_are_the_accelerators(choice: str) -> None:
    each = ("torch.cuda.is_available()", "torch.backends.mps.is_available()")
    assert made(choice.format(*each)) == "accelerator = Accelerator()"


@pytest.mark.parametrize("built", ['hasattr(torch.backends, "mps")', "torch.backends.mps.is_built()"])
def test_what_else_a_careful_script_asks_of_mps_is_true_where_there_is_one(built: str) -> None:
    each = ("torch.cuda.is_available()", f"{built} and torch.backends.mps.is_available()")
    assert made(BRANCHES.format(*each)) == "accelerator = Accelerator()"


def test_one_option_for_all_kinds_is_all_that_is_asked() -> None:
    each = ("not args.host and torch.cuda.is_available()", "not args.host and torch.backends.mps.is_available()")
    assert made(BRANCHES.format(*each)) == "accelerator = Accelerator(cpu=args.host)"


def test_one_kind_is_taken_as_there() -> None:
    assert made(f'device = "cuda" if {CUDA} else "cpu"') == "accelerator = Accelerator(cpu=args.no_cuda)"
    assert made('device = "mps" if not args.no_mps else "cpu"') == "accelerator = Accelerator(cpu=args.no_mps)"


def test_a_kind_other_than_cuda_is_asked_for_where_the_accelerator_would_take_cuda() -> None:
    assert made(f'device = "mps" if {MPS} else "cpu"') == f"accelerator = Accelerator(cpu=not ({MPS}))"
    chosen = 'device = torch.device("xpu" if torch.xpu.is_available() else "cpu")'
    assert made(chosen) == "accelerator = Accelerator(cpu=not torch.xpu.is_available())"
    assert made('device = torch.device("mps")') == "accelerator = Accelerator()"


def test_a_kind_that_only_an_option_asks_for_counts() -> None:
    chosen = BRANCHES.format("not args.no_cuda", MPS)
    assert made(chosen) == f"accelerator = Accelerator(cpu=args.no_cuda and not ({MPS}))"


def test_an_attribute_of_the_options_is_no_question_to_the_machine() -> None:
    chosen = 'device = "cuda" if hasattr(args, "host") else "cpu"'
    assert made(chosen) == 'accelerator = Accelerator(cpu=not hasattr(args, "host"))'


def test_a_choice_inside_another_block_leaves_the_loop() -> None:
    chosen = 'device = "cpu"\nwith open("log") as log:\n    if args.host:\n        device = "cuda"'
    assert "not an `if`" in unchanged(KINDS.format(chosen=chosen))


OWN = """
import argparse
import os
import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--place", {option})
args = parser.parse_args()


def pick(wanted):
    if not wanted:
        return None
    return torch.device("cuda")


def pair(wanted):
    return torch.device("cuda" if wanted else "cpu"), wanted


{chosen}
loader = DataLoader(data, batch_size=4)
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    loss = model(x.to(device)).mean()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "chosen",
    [
        'device, count = pair(int(os.environ.get("GPUS", 0)))',
        "[device, count] = pair(args.place)",
        'device, count = ("cuda" if args.place else "cpu"), 1',
    ],
)
def test_a_device_among_other_results_is_told_by_its_name(chosen: str) -> None:
    text = migrated(OWN.format(option="default='1'", chosen=chosen))
    assert f"{chosen}\naccelerator = Accelerator(device=device)\n" in text


@pytest.mark.parametrize(
    ("option", "chosen", "told"),
    [
        ("choices=['cpu', 'cuda']", "device = args.place", '"cpu" if args.place is None else args.place'),
        ("default=None", "device = args.place", '"cpu" if args.place is None else args.place'),
        ("default='cuda'", "device = args.place", "args.place"),
        ("required=True", "device = args.place", "args.place"),
        ("default=None", "device = args.place or 'cuda:1'", "args.place or 'cuda:1'"),
        ("default=None", "device = pick(args.place)", '"cpu" if device is None else device'),
        ("default=None", "device = os.environ.get('PLACE')", '"cpu" if device is None else device'),
        ("default=None", "device = os.environ.get('PLACE', 'cuda')", "os.environ.get('PLACE', 'cuda')"),
    ],
)
def test_none_moves_nothing_so_it_is_the_cpu(option: str, chosen: str, told: str) -> None:
    assert f"Accelerator(device={told})" in migrated(OWN.format(option=option, chosen=chosen))


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ('device: str = "cuda" if args.place else "cpu"', "cpu=not args.place"),
        ('device: str = "cuda" if torch.cuda.is_available() else "cpu"', ""),
        ('device = "cuda" if args.place else None', "cpu=not args.place"),
    ],
)
def test_a_choice_with_an_annotation_or_of_none_keeps_its_condition(chosen: str, told: str) -> None:
    assert f"accelerator = Accelerator({told})\n" in migrated(OWN.format(option="default=''", chosen=chosen))


def test_a_device_that_nothing_says_leaves_the_loop() -> None:
    assert "may name another device" in unchanged(
        OWN.format(option="default=''", chosen="for device in args.place: pass")
    )


TRAINER = """
import torch
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, args):
        {first}
        self.loader = DataLoader(rows, batch_size=4)
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        if {asked}:
            self.model.cuda()
        self.fixed = torch.ones(4, 1)
        if {asked}:
            self.fixed = self.fixed.cuda()
        {last}

    def train(self):
        for x in self.loader:
            if {later}:
                x = x.cuda()
            loss = (self.model(x) * self.fixed).mean()
            loss.backward()
            self.optimizer.step()
"""


def of_class(asked: str, first: str = "pass", last: str = "pass", later: str | None = None) -> str:
    return TRAINER.format(asked=asked, first=first, last=last, later=later or asked)


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        (of_class("self.gpu_mode", "self.gpu_mode = args.gpu"), "cpu=not self.gpu_mode"),
        (of_class("self.args.gpu", "self.args = args"), "cpu=not self.args.gpu"),
        (of_class("args.gpu", "self.gpu = args.gpu", later="self.gpu"), "cpu=not args.gpu"),
    ],
)
def test_an_object_that_is_told_whether_to_use_the_gpu(text: str, wish: str) -> None:
    assert f"        self.accelerator = Accelerator({wish})\n" in migrated(text)


@pytest.mark.parametrize(
    "text",
    [
        of_class("self.gpu_mode", "self.set(args)"),
        of_class("self.gpu_mode", "self.gpu_mode = args.gpu", "self.gpu_mode = True"),
        of_class("args.gpu", "args.gpu = args.gpu and rows", "args.gpu = False", later="self.gpu"),
        of_class("gpu", "gpu = args.gpu", "gpu = False", later="self.gpu"),
    ],
)
def test_an_object_that_is_told_later_or_twice_is_left(text: str) -> None:
    assert "before the options that it is made from are known" in unchanged(text)
