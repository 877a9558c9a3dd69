"""One process that believes itself the first of many: what it sends reaches nobody, and what it receives is its own."""

from __future__ import annotations

import os
import sys
from typing import Any


def pretend_world(torch: Any, size: int) -> None:
    """From now on a process group is one of torch's fakes."""
    dist = torch.distributed
    plain = dist.init_process_group

    def join(*args: Any, **kwargs: Any) -> Any:
        __import__("torch.testing._internal.distributed.fake_pg")
        store = sys.modules["torch.testing._internal.distributed.fake_pg"].FakeStore()
        return plain("fake", store=store, rank=int(os.environ["RANK"]), world_size=size)

    reduce = dist.all_reduce

    def add_up(tensor: Any, op: Any = dist.ReduceOp.SUM, *args: Any, **kwargs: Any) -> Any:
        done = reduce(tensor, op, *args, **kwargs)
        if op == dist.ReduceOp.SUM:  # of as many as there are, all with what this one has
            tensor.mul_(size)
        return done

    wrapper = sys.modules["torch.nn.parallel.distributed"].DistributedDataParallel
    made = wrapper.__init__

    def make(module: Any, *args: Any, **kwargs: Any) -> None:
        made(module, *args, **kwargs)
        # The reducer waits for a result, which a fake does not have.
        module.register_comm_hook(None, answered)
        module.register_comm_hook = lambda *others: None

    def answered(state: None, bucket: Any) -> Any:
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    answered.__annotations__ = {"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]}
    wrapper.__init__ = make
    dist.all_reduce = add_up
    dist.init_process_group = join
    dist.distributed_c10d.init_process_group = join
