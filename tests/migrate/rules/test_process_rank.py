"""AM704: rank and world size."""

from __future__ import annotations

import pytest
from accel_migrate.settings import Settings

from tests.migrate.rules.handwritten import script
from tests.migrate.rules.verbs import migrated, unchanged


@pytest.mark.parametrize(
    ("read", "becomes"),
    [
        ("dist.get_rank()", "accelerator.process_index"),
        ("dist.get_world_size()", "accelerator.num_processes"),
        ('int(os.environ["LOCAL_RANK"])', "accelerator.local_process_index"),
        ('int(os.environ.get("RANK", 0))', "accelerator.process_index"),
        ('int(os.getenv("WORLD_SIZE", "1"))', "accelerator.num_processes"),
        ('"WORLD_SIZE" in os.environ', "accelerator.num_processes > 1"),
        ('int(os.environ.get("RANK", -1)) != -1', "accelerator.num_processes > 1"),
        ('"log." + os.environ["RANK"]', '"log." + str(accelerator.process_index)'),
        ('"log." + os.environ.get("RANK", "0")', '"log." + str(accelerator.process_index)'),
        ('"log." + os.getenv("LOCAL_RANK")', '"log." + str(accelerator.local_process_index)'),
        ('os.environ["RANK"] == "0"', 'str(accelerator.process_index) == "0"'),
        ('os.environ.get("WORLD_SIZE", 1)', "accelerator.num_processes"),
        ("f\"log.{os.environ['RANK']}\"", 'f"log.{accelerator.process_index}"'),
        ("dist.get_rank() % torch.cuda.device_count()", "accelerator.local_process_index"),
        ("dist.get_rank() % max(1, torch.cuda.device_count())", "accelerator.local_process_index"),
        ("dist.get_rank() % 2", "accelerator.process_index % 2"),
        ("dist.get_world_size() % torch.cuda.device_count()", "accelerator.num_processes % torch.cuda.device_count()"),
        ("dist.get_rank() == 0", "accelerator.is_main_process"),
        ("dist.get_rank() != 0", "not accelerator.is_main_process"),
    ],
)
def test_a_read_is_asked_of_the_accelerator(read, becomes):
    assert f"use({becomes})" in migrated(script(body=f"use({read})"))


@pytest.mark.parametrize(
    ("guard", "becomes"),
    [
        ("rank == 0", "if accelerator.is_main_process:"),
        ("rank != 0", "if not accelerator.is_main_process:"),
        ("epoch % 2 == 0 and rank == 0", "if epoch % 2 == 0 and accelerator.is_main_process:"),
    ],
)
def test_a_guard_names_the_main_process(guard, becomes):
    text = migrated(script(start="rank = dist.get_rank()", body=f"if {guard}:\n                print(loss)"))
    assert becomes in text
    assert "rank" not in text.replace("process", "")


def test_what_is_printed_under_a_guard_stays_a_print():
    text = migrated(script(start="rank = dist.get_rank()", body="if rank == 0:\n                print(loss)"))
    assert "            print(loss)" in text


def test_a_rank_that_is_still_read_keeps_its_name():
    text = migrated(script(start="rank = dist.get_rank()", body="log(rank)"))
    assert "rank = accelerator.process_index" in text


def test_a_device_by_the_rank_counted_around_the_gpus_is_the_accelerators():
    start = "rank = dist.get_rank(); gpu = rank % torch.cuda.device_count()"
    text = migrated(script(start=start, body="use(torch.zeros(2, device=gpu))"))
    assert "use(torch.zeros(2, device=accelerator.device))" in text and "device_count" not in text


def test_a_number_of_gpus_is_of_one_machine_and_stays_one():
    start = "n_gpus = torch.cuda.device_count(); rows = 64 // n_gpus; print(dist.get_world_size(), n_gpus)"
    text = migrated(script(start=start, body="use(rows)"))
    assert "n_gpus = torch.cuda.device_count()" in text and "print(accelerator.num_processes, n_gpus)" in text


def test_an_option_of_an_old_launcher_is_asked_of_the_accelerator():
    source = script(body="use(args.local_rank)").replace(
        "def main():",
        'parser = make()\n    parser.add_argument("--local_rank")\n    args = parser.parse_args()\n\n\n    def main():',
    )
    assert "use(accelerator.local_process_index)" in migrated(source)
    named = source.replace("use(args.local_rank)", "use(torch.zeros(2, device=args.local_rank))")
    assert "use(torch.zeros(2, device=accelerator.device))" in migrated(named)


@pytest.mark.parametrize("move", ["to(args.local_rank)", "cuda(args.local_rank)"])
def test_an_option_of_an_old_launcher_goes_with_the_move_that_names_it(move):
    parsed = (
        'parser = make()\n    parser.add_argument("--local_rank")\n    args = parser.parse_args()\n\n\n    def main():'
    )
    source = (
        script().replace("def main():", parsed).replace("DDP(nn.Linear(2, 1).cuda()", f"DDP(nn.Linear(2, 1).{move}")
    )
    assert move in source
    text = migrated(source)
    assert "model = nn.Linear(2, 1)\n" in text and "local_process_index" not in text


def test_a_variable_of_the_same_name_that_is_no_rank_stays():
    text = migrated(script(start="rank = len(data_files)", body="if rank == 0:\n                stop()"))
    assert "rank = len(data_files)" in text
    assert "if rank == 0:" in text


def test_a_guard_that_speaks_of_something_else_is_no_main_process():
    text = migrated(script(body="if args.root:\n                print(loss)"), Settings(prints="once"))
    assert "accelerator.print(loss)" in text


@pytest.mark.parametrize(
    ("parameters", "call", "definition", "called"),
    [
        ("*values", "log(1, 2)", "def log(accelerator, *values):", "log(accelerator, 1, 2)"),
        ("level=0", "log(3)", "def log(accelerator, level=0):", "log(accelerator, 3)"),
        ("level=0", "log(level=3)", "def log(accelerator, level=0):", "log(level=3, accelerator=accelerator)"),
        ("", "log()", "def log(accelerator):", "log(accelerator)"),
        ("text, *values", "log(1, 2)", "def log(text, accelerator, *values):", "log(1, accelerator, 2)"),
    ],
)
def test_a_function_that_asks_is_handed_the_accelerator(parameters, call, definition, called):
    helper = f"    def log({parameters}):\n        if dist.get_rank() == 0:\n            tell()\n\n\n    def main():"
    text = migrated(script(body=call).replace("    def main():", helper))
    assert definition in text
    assert called in text


@pytest.mark.parametrize(("between", "lines"), [("", 1), ("elif '--here' in sys.argv:\n    where = 'cpu'", 2)])
def test_a_device_that_is_set_below_the_accelerator_is_set_once(between: str, lines: int) -> None:
    source = f"""
import os, sys
import torch
from torch import nn
from torch.distributed import init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

where = "cuda"
exec(open("options.py").read())
many = int(os.environ.get("RANK", -1)) != -1
if many:
    init_process_group(backend="nccl")
    mine = int(os.environ["LOCAL_RANK"])
    where = f"cuda:{{mine}}"
    torch.cuda.set_device(where)
{between}
kind = "cuda" if "cuda" in where else "cpu"
print(kind)
net = nn.Linear(4, 2).to(where)
steps = torch.optim.SGD(net.parameters(), lr=0.1)
if many:
    net = DDP(net, device_ids=[mine])
for x, y in DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8, 2)), batch_size=4):
    x, y = x.to(where), y.to(where)
    steps.zero_grad()
    nn.functional.mse_loss(net(x), y).backward()
    steps.step()
"""
    assert migrated(source).count("where = str(accelerator.device)") == lines


@pytest.mark.parametrize(
    "demand",
    [
        'assert int(os.environ["LOCAL_RANK"]) != -1, "start with torchrun"',
        'assert "RANK" in os.environ, "start with torchrun"',
        'assert "RANK" in os.environ and "WORLD_SIZE" in os.environ',
        'if int(os.environ.get("RANK", -1)) == -1: raise RuntimeError("start with torchrun")',
        'if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ: exit(1)',
    ],
)
def test_a_demand_for_a_launcher_goes(demand):
    text = migrated(script(start=demand))
    assert "num_processes" not in text and "assert" not in text and "raise" not in text and "exit" not in text


@pytest.mark.parametrize(
    "demand",
    [
        'assert int(os.environ["RANK"]) != -1 and READY',
        'if "RANK" not in os.environ: exit(1)\n        else: ready()',
        'if "RANK" in os.environ: ready()\n        else: raise RuntimeError("start with torchrun")',
        'launched = "RANK" in os.environ\n        assert launched, "start with torchrun"',
        'launched = int(os.environ.get("RANK", -1)) != -1\n        if not launched: raise RuntimeError("start with torchrun")',
    ],
)
def test_a_demand_that_does_more_leaves_the_loop(demand):
    assert "ends the script where no launcher started it" in unchanged(script(start=demand))


def test_a_demand_for_several_processes_stays():
    assert "assert accelerator.num_processes > 1\n" in migrated(script(start="assert dist.get_world_size() > 1"))
