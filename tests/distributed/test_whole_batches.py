"""Evaluations by whole batches where weights are sharded: each forward is a collective, and all processes take part in it."""

from __future__ import annotations

import pytest
import torch
from accel_runtime import Accelerator, FullyShardedDataParallelPlugin
from accel_runtime.errors import UsageError
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.distributed.worlds import in_world
from tests.distributed.zero import PATIENCE, SHARDED, accelerator, needs_deepspeed

SAMPLES = torch.randn(13, 4, generator=torch.Generator().manual_seed(1))


def fsdp() -> Accelerator:
    return Accelerator(cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin())


def zero() -> Accelerator:
    return accelerator(steps=1, zero_stage=3, hf_ds_config=SHARDED)


def evaluated(ours: Accelerator) -> list[list[float]]:
    """A figure of each batch, before and after a step that is the same on all processes; and the mean, asked in two ways."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = ours.prepare(model, optimizer, DataLoader(TensorDataset(SAMPLES), 2))
    found = []
    for _ in range(2):
        model.eval()
        norms: list[float] = []
        total = 0.0
        with torch.no_grad():
            for (x,) in ours.whole_batches(loader):
                norm = model(x).norm().item()
                norms += ours.sum_for_metrics([norm])
                total += ours.sum_for_metrics(norm)
        assert total / loader.batches_seen == pytest.approx(sum(norms) / len(loader.base_dataloader))
        found.append(norms)
        model.train()
        ours.backward(model(torch.ones(2, 4)).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()
    return found


def sent(device: str) -> tuple[list[float], list[str]]:
    """What a round sends of two devices: the values of all batches in order, each on its own."""
    ours = Accelerator(cpu=True)
    loader = ours.prepare(DataLoader(TensorDataset(torch.arange(7.0)), 2))
    values, devices = [], []
    for (x,) in ours.whole_batches(loader):
        for here, there, rows in ours.sum_for_metrics([(x, x.to(device), {"rows": x.tolist()})]):
            values += rows["rows"]
            assert here.tolist() == rows["rows"]
            devices.append(f"{here.device} {there.device}")
    return values, devices


@pytest.mark.parametrize("processes", [2, 3])
def test_what_is_sent_comes_back_on_its_own_device(processes):
    expected = [float(value) for value in range(7)], ["cpu cpu"] * 4
    assert in_world(processes, lambda: sent("cpu"), patience=PATIENCE) == [expected] * processes


@pytest.mark.parametrize("made", [fsdp, pytest.param(zero, marks=needs_deepspeed)], ids=["fsdp", "deepspeed"])
@pytest.mark.parametrize("processes", [2, 3])
def test_figures_of_sharded_models_are_those_of_one_process(made, processes):
    first, second = evaluated(Accelerator(cpu=True))
    assert len(first) == 7 and first != second
    for found in in_world(processes, lambda: evaluated(made()), patience=PATIENCE):
        assert found == [pytest.approx(first, rel=1e-5), pytest.approx(second, rel=1e-5)]


def not_prepared(shuffle: bool) -> tuple[list[float], list[float], float]:
    """The figures of two passes over a loader that is not prepared, and a number that is drawn behind them."""
    ours = Accelerator(cpu=True)
    torch.manual_seed(3)
    loader = DataLoader(TensorDataset(torch.arange(7.0)), 2, shuffle=shuffle)
    passes: list[list[float]] = [[], []]
    for means in passes:
        for (x,) in ours.whole_batches(loader):
            means += ours.sum_for_metrics([x.mean().item()])
        assert len(means) == len(loader) == 4
    return passes[0], passes[1], torch.rand(1).item()


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("processes", [2, 3])
def test_a_loader_that_is_not_prepared_is_dealt_out_as_it_comes_on_one_process(processes, shuffle):
    assert in_world(processes, lambda: not_prepared(shuffle), patience=PATIENCE) == [not_prepared(shuffle)] * processes


def of_data_that_differs() -> str:
    ours = Accelerator(cpu=True)
    loader = DataLoader(TensorDataset(torch.arange(6.0 + ours.process_index)), 2)
    with pytest.raises(UsageError) as told:
        ours.whole_batches(loader)
    return str(told.value)


def test_data_of_another_length_on_each_process_is_named():
    for said in in_world(2, of_data_that_differs, patience=PATIENCE):
        assert "of whole_batches() has 6 samples on rank 0 and 7 on rank 1" in said
