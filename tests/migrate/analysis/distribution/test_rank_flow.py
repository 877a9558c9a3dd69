"""Where the rank goes, and what not every process runs."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest
from accel_migrate.analysis.distribution.rank_flow import RankFlow
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.roles import Roles
from accel_migrate.flow.program import Program
from accel_migrate.flow.scopes import Module
from accel_migrate.source import Source

HEAD = "import os, sys, argparse, builtins\nimport torch\nimport torch.distributed as dist\nimport torch.multiprocessing as mp\n"


def guarded(text: str, **others: str) -> bool:
    """Whether only some processes come by the call of `meet()`."""
    files = {"train": text, **others}
    modules = [
        Module(Source.from_bytes(Path(f"{name}.py"), (HEAD + dedent(text)).encode())) for name, text in files.items()
    ]
    roles = Roles(Program(modules))
    flow = RankFlow(CallGraph(roles))
    (call,) = [c for c in modules[0].calls if isinstance(c.func, ast.Name) and c.func.id == "meet"]
    return flow.on_some(modules[0], call)


@pytest.mark.parametrize(
    "text",
    [
        "if dist.get_rank() == 0:\n    meet()",
        "if int(os.environ['RANK']) == 0:\n    meet()",
        "if not int(os.getenv('LOCAL_RANK', 0)):\n    meet()",
        "if os.environ.get('SLURM_PROCID') == '0':\n    meet()",
        "r = dist.get_rank()\nfirst = r == 0\nif first:\n    meet()",
        "r = dist.get_rank()\nif r == 0 or dist.get_world_size() == 1:\n    meet()",
        "r = dist.get_rank()\nwhile r == 0:\n    meet()",
        "r = dist.get_rank()\nvalue = meet() if r == 0 else None",
        "r = dist.get_rank()\nr == 0 and meet()",
        "if dist.get_rank() != 0:\n    sys.exit()\nmeet()",
        "for epoch in range(3):\n    if dist.get_rank() != 0:\n        continue\n    meet()",
        "def run(number):\n    if number == 0:\n        meet()\nmp.spawn(run, nprocs=2)",
        "def leave(me):\n    if me:\n        return\n    meet()\nleave(dist.get_rank())",
        "class Run:\n    def __init__(self, me):\n        self.me = me\n    def go(self):\n        if not self.me:\n            "
        "meet()\n"
        "Run(dist.get_rank()).go()",
        "def inner(a):\n    if a == 0:\n        meet()\ndef outer(b):\n    inner(b)\nouter(dist.get_rank())",
        "def save():\n    meet()\nif dist.get_rank() == 0:\n    save()",
        "def is_first():\n    return dist.get_rank() == 0\nif is_first():\n    meet()",
        "def who():\n    return dist.get_rank(), dist.get_world_size()\nme, all = who()\nif me == 0:\n    meet()",
        "def fill(o):\n    o.number = dist.get_rank()\ndef use(p):\n    if p.number == 0:\n        meet()\nfill(args)\nuse(args)",
        "log = None\nif dist.get_rank() == 0:\n    log = open('x')\nif log is not None:\n    meet()",
        "log = open('x') if dist.get_rank() == 0 else None\nif log:\n    meet()",
        "p = argparse.ArgumentParser()\np.add_argument('--local_rank')\na = p.parse_args()\n"
        "if a.local_rank in (-1, 0):\n    meet()",
        "def go(a):\n    dist.init_process_group('gloo', rank=a.node)\n    if a.node == 0:\n        meet()",
        "def go(a, n):\n    a.node = dist.get_rank()\n    if not a.multi or (a.multi and a.node % n == 0):\n        meet()",
        "from tools import is_main_process\nif is_main_process():\n    meet()",
        "torch.cuda.set_device(args.gpu)\nif torch.cuda.current_device() == 0:\n    meet()",
        "best = 0\nif dist.get_rank() == 0:\n    best = 1\nif best > 0:\n    meet()",
    ],
)
def test_some_processes_only(text: str):
    assert guarded(text)


@pytest.mark.parametrize(
    "text",
    [
        "meet()",
        "if dist.get_world_size() > 1:\n    meet()",
        "if 'RANK' in os.environ:\n    meet()",
        "r = dist.get_rank()\nif r is not None:\n    meet()",
        "r = dist.get_rank()\nif r != -1:\n    meet()",
        "r = dist.get_rank()\nif r >= 0:\n    meet()",
        "for epoch in range(3):\n    if epoch % 2 == 0:\n        meet()",
        "if dist.get_rank() == 0:\n    print('here')\nmeet()",
        "def save():\n    if dist.get_rank() == 0:\n        print()\nsave()\nmeet()",
        "device = torch.device('cuda', dist.get_rank())\nif device.type == 'cuda':\n    meet()",
        "kept = {}\nstep = kept['step']\nif step:\n    meet()\nif dist.get_rank() == 0:\n    kept = {'step': 1}",
        "number = torch.cuda.current_device()\nif 0 <= number < torch.cuda.device_count():\n    meet()",
        "rank = 3\nif rank == 0:\n    meet()",  # a name alone tells nothing
        "def low(rank):\n    if rank == 0:\n        meet()\nlow(8)",
    ],
)
def test_all_processes(text: str):
    assert not guarded(text)


READS = "class Runner:\n    def run(self):\n        if self.place == 0:\n            meet()\n"
SETS = "class Other:\n    place = None\ndef fill(it):\n    it.place = dist.get_rank()\n"


@pytest.mark.parametrize(
    "start",
    [
        {},
        {"both": "import train\nimport other"},
        {"both": "import train\nimport between", "between": "from other import fill"},
        {"both": "import importlib\nimportlib.import_module(sys.argv[1])"},
    ],
)
def test_an_attribute_is_the_rank_where_a_file_that_one_run_loads_sets_it(start: dict[str, str]) -> None:
    assert guarded(READS, other=SETS, **start) is bool(start)
    assert guarded("import other\n" + READS, other=SETS)
    assert guarded(READS, other="import train\n" + SETS)
