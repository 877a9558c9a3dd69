"""What is saved comes back as what it was, or is refused when it is saved."""

from __future__ import annotations

from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from pathlib import Path

import pytest
import torch
from accel_runtime import Accelerator
from accel_runtime.errors import CheckpointError
from torch import nn
from torch.optim import lr_scheduler


class Holder:
    def __init__(self, value) -> None:
        self.value = value

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


VALUES = [
    Counter({3: 2, 5: 1}),
    OrderedDict([("b", 1), ("a", 2)]),
    defaultdict(list, {"a": [1]}),
    defaultdict(None, {1: 2}),
    deque([1, 2, 3], maxlen=4),
    frozenset({1, "a"}),
    torch.Size([2, 3]),
    {(0, 1): "edge", None: 1.5, True: b"x"},
    torch.bfloat16,
    torch.device("cuda", 1),
]


@pytest.mark.parametrize("wait", [True, False])
def test_views_come_back_as_the_numbers_that_they_show(wait: bool, tmp_path: Path) -> None:
    table = torch.complex(torch.arange(6.0), torch.ones(6)).view(2, 3)
    views = [table.conj(), table.conj().imag, table.t(), table[:, 1], table.real.expand(2, 2, 3), table[:0]]
    accelerator = Accelerator(cpu=True)
    holder = Holder(views)
    accelerator.register_for_checkpointing(holder)
    accelerator.save_state(tmp_path / "x", wait=wait)
    holder.value = None
    accelerator.load_state(tmp_path / "x")
    assert [one.tolist() for one in holder.value] == [one.tolist() for one in views]


def test_containers_come_back_as_they_were(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    holder = Holder(None)
    accelerator.register_for_checkpointing(holder)
    for value in VALUES:
        holder.value = value
        accelerator.save_state(tmp_path / "x")
        holder.value = None
        accelerator.load_state(tmp_path / "x")
        assert holder.value == value and type(holder.value) is type(value)
        for name in ("default_factory", "maxlen"):
            assert getattr(holder.value, name, None) == getattr(value, name, None)


class Named(dict):
    """A dictionary with methods of its own."""


@pytest.mark.parametrize(
    "value",
    [Named(a=1), defaultdict(lambda: 3), UserDict(), print, int, object()],
    ids=["counter", "defaultdict", "userdict", "function", "type", "object"],
)
def test_other_types_are_refused_when_they_are_saved(value, tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    accelerator.register_for_checkpointing(Holder(value))
    with pytest.raises(CheckpointError, match=r"the state of custom_0\['value'\] is a "):
        accelerator.save_state(tmp_path / "x")
    assert not list(tmp_path.iterdir())


def schedules(optimizer):
    """Every scheduler of torch that needs no other argument than a few numbers, and nested ones."""
    yield lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.LinearLR(optimizer, total_iters=2), lr_scheduler.MultiStepLR(optimizer, [2, 4, 4])],
        milestones=[3],
    )
    yield lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    )
    yield lr_scheduler.MultiStepLR(optimizer, [2, 5])
    yield lr_scheduler.StepLR(optimizer, 2)
    yield lr_scheduler.LambdaLR(optimizer, Halving())
    yield lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    yield lr_scheduler.CosineAnnealingLR(optimizer, 8)
    yield lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3)
    yield lr_scheduler.PolynomialLR(optimizer, 9)
    yield lr_scheduler.CyclicLR(optimizer, 0.1, 0.2, step_size_up=3)
    yield lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=20)


class Halving:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, step: int) -> float:
        self.calls += 1
        return 0.5**step


def test_every_schedule_goes_on_where_it_was(tmp_path: Path) -> None:
    for number in range(11):

        def started():
            model = nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
            scheduler = list(schedules(optimizer))[number] if number else next(schedules(optimizer))  # noqa: B023
            accelerator = Accelerator(cpu=True)
            return accelerator, *accelerator.prepare(model, optimizer, scheduler)

        def rates(optimizer, scheduler, steps: int) -> list[float]:
            seen = []
            for _ in range(steps):
                optimizer.step()
                scheduler.step()
                seen.append(optimizer.param_groups[0]["lr"])
            return seen

        _, _, optimizer, scheduler = started()
        control = rates(optimizer, scheduler, 9)
        accelerator, _, optimizer, scheduler = started()
        before = rates(optimizer, scheduler, 2)
        folder = accelerator.save_state(tmp_path / str(number))
        accelerator, _, optimizer, scheduler = started()
        accelerator.load_state(folder)
        assert before + rates(optimizer, scheduler, 7) == control, type(scheduler.scheduler).__name__


NARROW = [torch.complex64, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e5m2]
if hasattr(torch, "float8_e8m0fnu"):  # from torch 2.7 on
    NARROW.append(torch.float8_e8m0fnu)


def test_models_of_every_type_that_safetensors_has(tmp_path: Path) -> None:
    model = nn.Module()
    for number, dtype in enumerate(NARROW):
        model.register_buffer(f"b{number}", torch.ones(3).to(dtype))
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(model)
    accelerator.save_state(tmp_path / "x")
    with torch.no_grad():
        for buffer in model.buffers():
            buffer.view(torch.uint8).zero_() if not buffer.is_complex() else buffer.zero_()
    accelerator.load_state(tmp_path / "x")
    assert all(buffer.to(torch.complex64).tolist() == [1, 1, 1] for buffer in model.buffers())


def test_what_safetensors_cannot_hold_is_refused_by_name(tmp_path: Path) -> None:
    for name, tensor, why in (
        ("wide", torch.ones(2, dtype=torch.complex128), "cannot hold wide: a torch.strided tensor of torch.complex128"),
        ("__metadata__", torch.ones(2), "cannot hold a tensor named __metadata__"),
    ):
        model = nn.Module()
        model.register_buffer(name, tensor)
        accelerator = Accelerator(cpu=True)
        accelerator.prepare(model)
        with pytest.raises(CheckpointError, match=why):
            accelerator.save_state(tmp_path / "x")
        assert not list(tmp_path.iterdir())


def test_sparse_gradients_are_saved_and_come_back_sparse(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    model = nn.Embedding(6, 2, sparse=True)
    model, optimizer = accelerator.prepare(model, torch.optim.SparseAdam(model.parameters()))
    accelerator.backward(model(torch.tensor([1, 4, 1])).sum())
    gradient = model.weight.grad.clone()
    folder = accelerator.save_state(tmp_path / "x")
    optimizer.step()
    optimizer.zero_grad()
    accelerator.load_state(folder)
    assert model.weight.grad.is_sparse and torch.equal(model.weight.grad.to_dense(), gradient.to_dense())
    assert model.weight.grad.is_coalesced() == gradient.is_coalesced()


class Counted(nn.Module):
    """Keeps a number beside its tensors, one of which is empty."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("none", torch.zeros(0, 3))
        self.calls = 0

    def get_extra_state(self) -> dict[str, int]:
        return {"calls": self.calls}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.calls = state["calls"]


def test_what_a_model_keeps_beside_tensors_and_empty_ones_come_back(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(Counted())
    model.calls = 3
    weight = model.layer.weight.clone()
    accelerator.save_state(tmp_path / "x")
    model.calls = 9
    with torch.no_grad():
        model.layer.weight.zero_()
    accelerator.load_state(tmp_path / "x")
    assert model.calls == 3 and torch.equal(model.layer.weight, weight) and model.none.shape == (0, 3)
