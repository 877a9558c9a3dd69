"""A cross validation prepares a model for each fold: those of earlier folds are forgotten, unless the script holds them."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from accel_runtime import Accelerator
from accel_runtime.errors import UsageError
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.distributed.worlds import in_world

FOLDS = 4
WORLDS = [("ddp", 1), ("ddp", 2), ("fsdp", 1), ("fsdp", 2)]
Weak = list[weakref.ref]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)
        self.itself = [self]  # as parts of a model that know the whole

    def forward(self, x):
        return self.head(self.norm(self.body(x)).tanh())


def fold(accelerator, number, prepared=lambda *_: None, in_one_call=True):
    """Trains one model; `prepared` gets the model, the optimizer, the scheduler and the loader."""
    torch.manual_seed(number)
    data = torch.randn(16, 3)
    loader = DataLoader(TensorDataset(data, data.sum(1, keepdim=True)), batch_size=4, shuffle=True)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    if in_one_call:
        model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
    else:
        model, loader = accelerator.prepare(model), accelerator.prepare(loader)
        optimizer, scheduler = accelerator.prepare(optimizer), accelerator.prepare(scheduler)
    prepared(model, optimizer, scheduler, loader)
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    return {key: value.tolist() for key, value in accelerator.get_state_dict(model).items()}


def folds(in_one_call=True):
    """How many of each kind live in the last fold, the messages of each, and what it has trained."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    seen: list[Weak] = []
    messages: list[int] = []
    sent, plain = [0], dist.all_reduce

    def counted(*args, **kwargs):
        sent[0] += 1
        return plain(*args, **kwargs)

    dist.all_reduce = counted
    for number in range(FOLDS):
        state = fold(accelerator, number, lambda *things: seen.append([*map(weakref.ref, things)]), in_one_call)
        messages.append(sent[0])
        sent[0] = 0
    gc.collect()
    alive = [sum(one() is not None for one in kind) for kind in zip(*seen)]
    kinds = (accelerator._models, accelerator._optimizers, accelerator._schedulers, accelerator._dataloaders)
    return alive, [len(kind) for kind in kinds], messages, state


def alone():
    return fold(Accelerator(cpu=True, gradient_accumulation_steps=2), FOLDS - 1)


@pytest.mark.parametrize("in_one_call", [True, False])
@pytest.mark.parametrize(("strategy", "size"), WORLDS)
def test_of_all_folds_the_last_is_there_and_trains_as_if_it_were_the_only_one(strategy, size, in_one_call, monkeypatch):
    monkeypatch.setenv("ACCEL_STRATEGY", strategy)
    for expected, (alive, listed, messages, state) in zip(
        in_world(size, alone), in_world(size, lambda: folds(in_one_call))
    ):
        assert alive == listed == [1, 1, 1, 1]
        assert len(set(messages)) == 1
        assert state == expected


def test_what_the_script_holds_in_whatever_way_is_trained_and_saved_on(tmp_path: Path) -> None:
    def work():
        accelerator = Accelerator(cpu=True)
        body, head = nn.Linear(3, 4), nn.Linear(4, 1)
        optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        loader = accelerator.prepare(DataLoader(TensorDataset(torch.randn(16, 3)), batch_size=2))
        accelerator.prepare(nn.ModuleList([body, head]), optimizer, schedule)
        whole = accelerator.prepare(Net())  # which no optimizer steps
        loader = accelerator.skip_first_batches(loader, 1)
        second = accelerator.prepare(nn.Linear(3, 1))
        kinds = [[type(one).__name__ for one in accelerator._models], len(accelerator._optimizers)]
        kinds += [len(accelerator._schedulers), len(accelerator._dataloaders)]
        for (x,) in loader:
            accelerator.backward(head(body(x)).pow(2).mean())
            optimizer.step()
        accelerator.save_state(str(tmp_path / "state"))
        accelerator.load_state(str(tmp_path / "state"))
        return kinds, body.weight.tolist(), [whole is not None, second is not None]

    first, other = in_world(2, work)
    assert first == other
    assert first[0] == [["ModuleList", "Net", "Linear"], 1, 1, 1]


def test_what_one_process_alone_still_holds_is_forgotten_by_all_and_refused_where_it_is_trained() -> None:
    def work():
        accelerator = Accelerator(cpu=True)
        held = []
        fold(accelerator, 0, lambda *things: held.extend(things[:2] if accelerator.is_main_process else ()))
        fold(accelerator, 1)
        listed = len(accelerator._models), len(accelerator._optimizers)
        if not held:
            return listed, ""
        with pytest.raises(UsageError) as refusal:
            accelerator.backward(held[0](torch.randn(4, 3)).mean())
        return listed, str(refusal.value)

    (first, refusal), (other, _) = in_world(2, work)
    assert first == other == (1, 1)
    assert "whose model the script let go of before it called prepare() again" in refusal


def test_parts_of_a_model_that_an_unprepared_optimizer_steps_are_refused_once_their_model_is_forgotten() -> None:
    def work():
        accelerator = Accelerator(cpu=True)
        body, head = nn.Linear(3, 4), nn.Linear(4, 1)
        accelerator.prepare(nn.ModuleList([body, head]))
        accelerator.backward(head(body(torch.randn(4, 3))).mean())
        other = accelerator.prepare(nn.Linear(3, 1))
        accelerator.backward(other(torch.randn(4, 3)).mean())
        with pytest.raises(UsageError, match="let go of"):
            accelerator.backward(head(body(torch.randn(4, 3))).mean())
        both = accelerator.prepare(nn.ModuleList([body, head]))
        accelerator.backward(head(body(torch.randn(4, 3))).mean())
        return len(both), body.weight.grad is not None

    assert in_world(2, work) == [(2, True)] * 2


def test_a_state_saved_in_a_fold_is_that_of_its_model_alone(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    for number in range(2):
        fold(accelerator, number)
        accelerator.save_state(str(tmp_path / str(number)))
    files = [{path.name for path in (tmp_path / str(number)).iterdir()} for number in range(2)]
    assert files[0] == files[1]
    accelerator.load_state(str(tmp_path / "1"))
