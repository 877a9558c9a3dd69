"""A script that is distributed by hand, with holes for what a test is about."""

from __future__ import annotations

SCRIPT = """
    import os

    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader
    from torch.utils.data.distributed import DistributedSampler


    def main():
        dist.init_process_group("nccl")
        {start}
        data = build()
        sampler = DistributedSampler(data{sampler})
        loader = DataLoader(data, batch_size=4, sampler=sampler{loader})
        model = DDP(nn.Linear(2, 1).cuda(){wrapper})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            {body}


    main()
    """


def script(start: str = "pass", sampler: str = "", loader: str = "", wrapper: str = "", body: str = "pass") -> str:
    return SCRIPT.format(start=start, sampler=sampler, loader=loader, wrapper=wrapper, body=body)
