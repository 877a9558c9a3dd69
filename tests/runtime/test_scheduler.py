"""How prepared schedulers count, and that they are the user's schedulers."""

import copy
import pickle

import pytest
import torch
from accel_runtime import Accelerator
from accel_runtime.accumulation import Accumulation, GradientAccumulationPlugin
from accel_runtime.data.iteration import Iteration, Iterations
from accel_runtime.errors import UsageError
from accel_runtime.optimizer import PreparedOptimizer
from accel_runtime.scheduler import PreparedScheduler
from torch import nn
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR, ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader


def optimizer():
    return torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)


def on_processes(scheduler, times, inside, **choices):
    """The scheduler as it counts on so many processes, inside or outside of a loader's iteration."""
    iterations = Iterations([Iteration(10)] if inside else [])
    accumulation = Accumulation(GradientAccumulationPlugin(), iterations, None)
    bound = (PreparedOptimizer(scheduler.optimizer, accumulation),)
    return PreparedScheduler(scheduler, bound, accumulation, iterations, times=times, **choices)


@pytest.mark.parametrize(
    ("times", "inside", "choices", "counted"),
    [
        (1, True, {}, 1),
        (4, True, {}, 4),
        (4, False, {}, 1),
        (4, True, {"with_optimizer": False}, 1),
    ],
)
def test_a_step_counts_the_batches_it_stands_for(times, inside, choices, counted):
    scheduler = on_processes(StepLR(optimizer(), 1), times, inside, **choices)
    scheduler.optimizers[0].step()
    scheduler.step()
    assert scheduler.last_epoch == counted


def test_a_step_with_a_metric_counts_once():
    plateau = ReduceLROnPlateau(optimizer(), patience=3)
    scheduler = on_processes(plateau, 4, inside=True)
    for _ in range(3):
        scheduler.step(1.0)
    assert plateau.num_bad_epochs == 2


def test_a_schedule_of_fixed_length_is_not_overrun():
    scheduler = on_processes(OneCycleLR(optimizer(), 1.0, total_steps=5), 2, inside=True)
    for _ in range(3):
        scheduler.optimizers[0].step()
        scheduler.step()
    assert scheduler.last_epoch == 5


def test_on_one_process_a_schedule_that_has_ended_stays_there_and_says_so():
    scheduler = on_processes(OneCycleLR(optimizer(), 1.0, total_steps=2), 1, inside=True)
    scheduler.optimizers[0].step()
    scheduler.step()
    scheduler.step()
    with pytest.warns(UserWarning, match="OneCycleLR is made for 2 steps and is asked for more") as said:
        scheduler.step()
        scheduler.step()
    assert len(said) == 1 and scheduler.last_epoch == 2


def test_a_held_back_micro_step_does_not_count():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    bare = optimizer()
    prepared, scheduler = accelerator.prepare(bare, StepLR(bare, 1))
    seen = []
    for _ in accelerator.prepare(DataLoader(torch.ones(5, 1), 1)):
        with accelerator.accumulate():
            prepared.step()
            scheduler.step()
        seen.append(scheduler.last_epoch)
    assert seen == [0, 1, 1, 2, 3]


@pytest.mark.parametrize("counted", [False, True])
def test_a_step_that_fp16_skipped_counts_on_request(counted: bool):
    accelerator = Accelerator(cpu=True, mixed_precision="fp16", schedule_skipped_steps=counted)
    model = torch.nn.Linear(1, 1)
    bare = torch.optim.SGD(model.parameters(), lr=1.0)
    model, prepared, scheduler = accelerator.prepare(model, bare, StepLR(bare, 1))
    seen = []
    for factor in (float("inf"), 1.0):
        accelerator.backward(model(torch.ones(1, 1)).sum() * factor)
        prepared.step()
        scheduler.step()
        prepared.zero_grad()
        seen.append((accelerator.optimizer_step_was_skipped, scheduler.last_epoch))
    assert seen == ([(True, 1), (False, 2)] if counted else [(True, 0), (False, 1)])


def test_a_step_for_each_epoch_counts_once():
    accelerator = Accelerator(cpu=True)
    bare = optimizer()
    prepared, scheduler, loader = accelerator.prepare(bare, StepLR(bare, 1), DataLoader(torch.ones(5, 1), 1))
    for _ in range(3):
        for _ in loader:
            prepared.step()
        scheduler.step()
    assert scheduler.last_epoch == 3


def test_wrappers_are_the_objects_they_wrap():
    accelerator = Accelerator(cpu=True)
    bare = optimizer()
    plain = StepLR(bare, 2)
    prepared, scheduler = accelerator.prepare(bare, plain)
    assert isinstance(prepared, torch.optim.SGD)
    assert isinstance(scheduler, LRScheduler)
    assert prepared.param_groups is bare.param_groups
    assert (scheduler.step_size, scheduler.get_last_lr(), scheduler.optimizer) == (2, [1.0], bare)
    prepared.param_groups[0]["lr"] = 0.5
    scheduler.last_epoch = 7
    assert bare.param_groups[0]["lr"] == 0.5
    assert plain.last_epoch == 7
    assert scheduler.state_dict() == plain.state_dict()
    assert "SGD" in repr(prepared)


def test_a_scheduler_made_from_a_prepared_optimizer_works():
    accelerator = Accelerator(cpu=True)
    prepared = accelerator.prepare(optimizer())
    scheduler = accelerator.prepare(StepLR(prepared, 1, 0.5))
    prepared.step()
    scheduler.step()
    assert prepared.param_groups[0]["lr"] == 0.5
    assert prepared.optimizer.param_groups[0]["lr"] == 0.5


def test_a_prepared_optimizer_can_be_pickled():
    prepared = Accelerator(cpu=True).prepare(optimizer())
    twin = pickle.loads(pickle.dumps(prepared))
    assert type(twin) is torch.optim.SGD


def test_a_copy_of_what_is_prepared_is_prepared():
    accelerator = Accelerator(cpu=True)
    prepared = accelerator.prepare(optimizer())
    scheduler = accelerator.prepare(StepLR(prepared, 1, 0.5))
    assert type(pickle.loads(pickle.dumps(scheduler))) is StepLR
    for each in (prepared, scheduler):
        for twin in (copy.copy(each), copy.deepcopy(each)):
            assert type(twin) is type(each) and twin is not each
    assert copy.copy(prepared).optimizer is prepared.optimizer
    assert copy.deepcopy(prepared).optimizer is not prepared.optimizer


def test_a_scheduler_of_an_unprepared_optimizer_is_refused():
    with pytest.raises(UsageError, match="StepLR steps a SGD that was not prepared"):
        Accelerator(cpu=True).prepare(StepLR(optimizer(), 1))
