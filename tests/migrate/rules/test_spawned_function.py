"""AM706: mp.spawn."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.plan import Status
from accel_migrate.settings import Settings
from accel_migrate.source import Source

from tests.migrate.rules.verbs import migrated, unchanged

SCRIPT = """
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP


    def main(rank, world_size, lr):
        dist.init_process_group("nccl", rank=rank, world_size=world_size)
        loader = torch.utils.data.DataLoader(data(), batch_size=4)
        model = DDP(nn.Linear(2, 1).to(rank), device_ids=[rank])
        optimizer = torch.optim.SGD(model.parameters(), lr={lr})
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.to(rank)), y.to(rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


    if __name__ == "__main__":
        world_size = torch.cuda.device_count()
        {start}
    """
SPAWN = "mp.spawn(main, args=(world_size, 0.1), nprocs=world_size)"


def test_the_function_is_called_once():
    text = migrated(SCRIPT.format(lr="lr", start=SPAWN))
    assert "def main(lr):\n    accelerator = Accelerator()\n" in text
    assert 'if __name__ == "__main__":\n    main(0.1)\n' in text
    assert "mp" not in text.split("Accelerator")[0].replace("import", "")


def test_a_size_that_is_still_read_is_asked_for():
    text = migrated(SCRIPT.format(lr="lr * world_size", start=SPAWN))
    assert "    accelerator = Accelerator()\n    world_size = accelerator.num_processes\n" in text


def test_a_size_in_an_option_that_is_worked_out_by_the_starter_is_asked_for():
    source = SCRIPT.replace("def main(rank, world_size, lr):", "def main(rank, args):").replace(
        "world_size=world_size)", "world_size=args.world_size)"
    )
    source = source.replace("world_size = torch.cuda.device_count()\n", "args = options()\n")
    start = "args.world_size = args.gpus * args.nodes\n        mp.spawn(main, args=(args,), nprocs=args.gpus)"
    text = migrated(source.format(lr="args.lr * args.world_size", start=start))
    assert "lr=args.lr * accelerator.num_processes" in text
    elsewhere = source.replace("def main(", "def rate(args):\n        return 0.1 * args.world_size\n\n\n    def main(")
    reason = unchanged(elsewhere.format(lr="rate(args)", start=start))
    assert "`args.world_size` is worked out before the processes are started, and rate() reads it" in reason


def test_a_function_that_is_told_nothing_else_has_no_parameters_left():
    source = SCRIPT.format(lr="0.1", start="mp.spawn(main, (world_size,), world_size)")
    for told in ("rank, world_size", "rank, world_size=2", "rank: int,\n             world_size: int"):
        text = migrated(source.replace("rank, world_size, lr", told))
        assert "def main():\n    accelerator = Accelerator()\n" in text
        assert 'if __name__ == "__main__":\n    main()\n' in text


CHOICE = "if world_size > 1:\n            " + SPAWN + "\n        else:\n            {call}"


@pytest.mark.parametrize("call", ["main(0, 1, 0.1)", "main(0, world_size, 0.1)"])
def test_of_spawning_and_calling_the_call_is_left(call):
    text = migrated(SCRIPT.format(lr="lr * world_size", start=CHOICE.format(call=call)))
    assert "def main(lr):\n    accelerator = Accelerator()\n    world_size = accelerator.num_processes\n" in text
    assert text.endswith("main(0.1)\n")
    assert "mp.spawn" not in text


@pytest.mark.parametrize("call", ["main(1, 1, 0.1)", "main(0, 2, 0.1)", "main(0, 1, 0.2)", "main(0, 1, lr=0.1)"])
def test_leaves_a_call_that_does_other_things(call):
    assert "also called" in unchanged(SCRIPT.format(lr="lr", start=CHOICE.format(call=call)))


WORKER = """
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch import nn


    def worker(gpu, cards, args):
        args.gpu = gpu
        if args.distributed:
            args.rank = args.rank * cards + gpu
            {join}
        model = nn.Linear(2, 1)
        if args.distributed:
            args.batch_size = args.batch_size // cards
            model = nn.parallel.DistributedDataParallel(model.cuda(args.gpu), device_ids=[args.gpu])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = torch.utils.data.DataLoader(data(), batch_size=args.batch_size)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


    def main(args):
        cards = torch.cuda.device_count()
        args.distributed = args.world_size > 1 or args.many
        if args.many:
            {before}
            mp.spawn(worker, nprocs=cards, args=(cards, args))
        else:
            {call}
    """
PARTS = {
    "join": "dist.init_process_group('nccl', init_method=args.url, world_size=args.world_size, rank=args.rank)",
    "before": "args.world_size = cards * args.world_size",
    "call": "worker(args.gpu, cards, args)",
}


def test_a_worker_asks_the_accelerator_what_it_was_told():
    text = migrated(WORKER.format(**PARTS))
    assert (
        "    args.gpu = gpu\n"
        "    accelerator = Accelerator()\n"
        "    cards = accelerator.local_num_processes\n"
        "    args.world_size = accelerator.num_processes\n"
        "    args.distributed = args.world_size > 1\n"
    ) in text
    assert "    if args.distributed:\n        args.batch_size = args.batch_size // cards\n" in text
    assert "    cards = torch.cuda.device_count()\n    worker(args.gpu, cards, args)\n" in text
    assert "dist" not in text.replace("args.distributed", "")


READING = "            optimizer.step()\n        if {test}:\n            print(args.gpu, args.rank)\n"


def test_a_worker_is_told_all_that_it_still_reads():
    source = WORKER.format(**PARTS).replace(
        "            optimizer.step()\n", READING.format(test="args.many and args.rank > 1")
    )
    assert (
        "    args.gpu = accelerator.device.index\n"
        "    cards = accelerator.local_num_processes\n"
        "    args.rank, args.world_size = accelerator.process_index, accelerator.num_processes\n"
        "    args.distributed = args.world_size > 1\n"
        "    args.many = args.distributed\n"
    ) in migrated(source)


def test_the_number_of_a_card_that_is_compared_asks_for_the_main_process_of_a_machine():
    source = WORKER.format(**PARTS).replace("            optimizer.step()\n", READING.format(test="args.gpu == 0"))
    assert "if accelerator.is_local_main_process:" in migrated(source)


SILENT = """        args.gpu = gpu
        if args.many and args.gpu != 0:
            def nothing(*words):
                pass
            import builtins
            builtins.print = nothing
"""


def test_no_process_is_silenced():
    text = migrated(WORKER.format(**PARTS).replace("        args.gpu = gpu\n", SILENT))
    assert "nothing" not in text and "builtins" not in text


def test_one_process_is_enough():
    alone = "device_ids=[args.gpu])\n        else:\n            raise NotImplementedError('only distributed')\n"
    text = migrated(WORKER.format(**PARTS).replace("device_ids=[args.gpu])\n", alone))
    assert "raise" not in text and "else" not in text
    assert "    if args.distributed:\n        args.batch_size = args.batch_size // cards\n" in text


def test_a_rank_that_a_spawned_function_works_out_is_asked_of_the_accelerator():
    source = (
        SCRIPT.format(lr="lr", start=SPAWN)
        .replace("rank=rank", "rank=number")
        .replace("        dist.init", "        number = offset() + rank\n        dist.init")
    )
    assert "offset" not in migrated(source)


def test_beside_a_rank_that_is_worked_out_the_number_of_a_spawned_process_counts_on_its_machine():
    source = (
        SCRIPT.format(lr="lr", start=SPAWN)
        .replace("rank=rank", "rank=number")
        .replace(
            "        dist.init", "        number = offset() + rank\n        share = 64 // world_size\n        dist.init"
        )
        .replace("optimizer.step()", "optimizer.step()\n            if rank == 0: note(share)")
    )
    text = migrated(source)
    assert "world_size = accelerator.local_num_processes" in text
    assert "if accelerator.is_local_main_process: note(share)" in text
    assert "main() gets the number of processes on its machine" in unchanged(source, Settings(target="accelerate"))


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("join", "dist.init_process_group('nccl', world_size=args.world_size, rank=args.node * cards + gpu)"),
        ("join", "dist.init_process_group('nccl', world_size=args.world_size, rank=args.rank); log_in()"),
        ("before", "prepare_data()"),
        ("call", "worker(args.gpu, 1, args)"),
        ("call", "worker(args.gpu, cards, args); report()"),
    ],
)
def test_leaves_a_worker_whose_start_does_more(part, line):
    assert "also called" in unchanged(WORKER.format(**PARTS | {part: line}))


def test_leaves_a_worker_for_a_target_that_cannot_count():
    assert "worker() gets the number" in unchanged(WORKER.format(**PARTS), Settings(target="accelerate"))


@pytest.mark.parametrize(
    "start",
    [
        "context = mp.spawn(main, args=(world_size, 0.1), nprocs=world_size, join=False)",
        "mp.spawn(main, args=arguments, nprocs=world_size)",
        "mp.spawn(pick(), args=(world_size, 0.1), nprocs=world_size)",
        "mp.spawn(main, args=(world_size,), nprocs=world_size)",
        SPAWN + " if many else main(0, 1, 0.1)",
        "process = mp.Process(target=main, args=(0, 2, 0.1)); process.start()",
    ],
)
def test_a_start_that_is_not_understood_leaves_the_loop(start):
    assert unchanged(SCRIPT.format(lr="lr", start=start))


@pytest.mark.parametrize(
    "worked_out",
    [
        "rate = 0.1 * world_size\n        mp.spawn(main, args=(world_size, rate), nprocs=world_size)",
        "options.lr *= world_size\n        mp.spawn(main, args=(world_size, options.lr), nprocs=world_size)",
    ],
)
def test_a_rate_that_is_worked_out_from_the_number_of_gpus_leaves_the_loop(worked_out: str):
    assert "counts GPUs before the processes are started" in unchanged(SCRIPT.format(lr="lr", start=worked_out))


def test_a_number_of_gpus_that_is_only_shown_stays():
    assert "main(0.1)" in migrated(SCRIPT.format(lr="lr", start="print(world_size)\n        " + SPAWN))


def test_a_helper_of_another_file_that_starts_processes():
    train = SCRIPT.format(lr="lr", start="launch(main, 2, (0.1,))").replace("import torch.multiprocessing as mp", "")
    train = train.replace("import torch.distributed as dist", "from launch import launch")
    plain = train.replace("DDP(nn.Linear(2, 1).to(rank), device_ids=[rank])", "nn.Linear(2, 1).to(rank)")
    helper = "import torch.multiprocessing as mp\n\ndef launch(run, n, args):\n    mp.spawn(run, args=args, nprocs=n)\n"
    for script in (train, plain.replace("rank, world_size, lr", "rank, lr")):
        files = {
            "train.py": script.replace('    dist.init_process_group("nccl", rank=rank, world_size=world_size)', "")
        }
        results = migrate(
            [Source.from_bytes(Path(n), dedent(t).encode()) for n, t in (files | {"launch.py": helper}).items()]
        )
        assert results[0].status is Status.UNCHANGED
        assert "launch() of launch.py starts processes by itself" in results[0].reason


def test_a_number_of_gpus_in_what_is_handed_over_is_that_of_the_processes() -> None:
    source = """
        import argparse
        import torch
        import torch.distributed as dist
        import torch.multiprocessing as mp
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader


        def main():
            args = argparse.ArgumentParser().parse_args()
            args.count = torch.cuda.device_count()
            mp.spawn(work, nprocs=args.count, args=(args,))


        def work(gpu, args):
            dist.init_process_group("nccl", world_size=args.count, rank=gpu)
            torch.cuda.set_device(gpu)
            loader = DataLoader(rows, batch_size=8 // args.count)
            net = DDP(nn.Linear(3, 3).cuda(gpu), device_ids=[gpu])
            optimizer = torch.optim.Adam(net.parameters())
            for x, y in loader:
                loss = nn.functional.mse_loss(net(x.cuda(gpu)), y.cuda(gpu))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


        main()
        """
    assert "batch_size=8 // accelerator.num_processes" in migrated(source)
