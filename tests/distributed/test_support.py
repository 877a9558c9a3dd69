"""What the table of support calls tested on the CPU does train, every cell of it."""

import os
from importlib.util import find_spec

import pytest
import torch
from accel_runtime import Accelerator
from accel_runtime.support import Standing, cells, strategies
from torch import nn

from tests.distributed.worlds import in_world


def trained(strategy):
    """For each precision that the table calls tested: whether two steps bring the loss down."""
    os.environ["ACCEL_STRATEGY"] = "ddp" if strategy == "single" else strategy
    at_hand = [one for one in cells() if (one.device, one.strategy, one.standing) == ("cpu", strategy, Standing.TESTED)]
    return {one.precision: losses_fall(one.precision) for one in at_hand}


def losses_fall(precision):
    accelerator = Accelerator(cpu=True, mixed_precision=precision)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.Linear(16, 16))
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    losses = []
    for _ in range(2):
        loss = model(torch.ones(16, 16)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses[1] < losses[0]


def assert_trained(done):
    for strategy, by_precision in done.items():
        assert by_precision, strategy
        assert all(by_precision.values()), (strategy, by_precision)


def test_what_the_table_calls_tested_trains():
    (alone,) = in_world(1, lambda: {"single": trained("single")})
    names = [name for name in strategies() if name not in ("single", "deepspeed")]
    for done in (alone, *in_world(2, lambda: {name: trained(name) for name in names})):
        assert_trained(done)


@pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed")
def test_what_the_table_calls_tested_trains_under_deepspeed_too():
    def work():
        del os.environ["LOCAL_RANK"]  # which some launchers do not set
        return {"deepspeed": trained("deepspeed")}

    for done in in_world(2, work):
        assert_trained(done)
