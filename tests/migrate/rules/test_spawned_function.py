"""AM706: mp.spawn."""

from __future__ import annotations

import pytest

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
