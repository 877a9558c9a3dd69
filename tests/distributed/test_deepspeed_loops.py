"""Training loops under DeepSpeed's engine: overflows, windows, and what it cannot do, refused by name."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch
from accel_runtime import Accelerator, DeepSpeedPlugin
from accel_runtime.errors import AccelError
from torch import nn

from tests.distributed.worlds import in_world
from tests.distributed.zero import PATIENCE, accelerator, needs_deepspeed

pytestmark = needs_deepspeed


def line(ours: Accelerator, rate: float = 0.1) -> tuple[nn.Module, Any, Any]:
    """A small model, its optimizer, and a schedule that halves the rate at every step."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    prepared: tuple[nn.Module, Any, Any] = ours.prepare(
        model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    )
    return prepared


def steps_with_an_overflow(stage: int) -> list[tuple[bool, float, float, bool]]:
    """Of three steps, in the second of which one process overflows: skipped, rate, norm, whether the weights moved."""
    ours = accelerator(steps=1, zero_stage=stage)
    model, optimizer, scheduler = line(ours)
    told = []
    for factor in (1.0, torch.inf if ours.process_index == 1 else 1.0, 1.0):
        before = ours.get_state_dict(model)["weight"].clone()
        ours.backward(model(torch.ones(1, 4)).sum() * factor)
        norm = ours.clip_grad_norm_(model.parameters(), 0.5).item()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        moved = not torch.equal(ours.get_state_dict(model)["weight"], before)
        told.append((ours.optimizer_step_was_skipped, optimizer.param_groups[0]["lr"], norm, moved))
    return told


def weights_after_windows() -> dict[str, list[float]]:
    """Two windows of two micro-steps, the first of them clipped, made in two ways by one Accelerator."""
    inputs = torch.arange(16.0).reshape(4, 1, 4) / 10
    weights = {}
    ours = accelerator(steps=2, zero_stage=2)
    model, optimizer, _ = line(ours)
    for number, one in enumerate(inputs):
        with ours.accumulate(model):
            ours.backward(model(one).square().sum())
            if number == 1:
                ours.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
    weights["accumulate"] = ours.get_state_dict(model)["weight"].flatten().tolist()
    model, optimizer = ours.free_memory(model, optimizer)
    model, optimizer, _ = line(ours)
    for window in (0, 2):
        with ours.no_sync(model):
            ours.backward(model(inputs[window]).square().sum())
        ours.backward(model(inputs[window + 1]).square().sum())
        if window == 0:
            ours.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
    weights["no_sync"] = ours.get_state_dict(model)["weight"].flatten().tolist()
    return weights


def windows_of_plain_torch() -> list[float]:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.arange(16.0).reshape(4, 1, 4) / 10
    windows = inputs[:2], inputs[2:]
    for pair in windows:
        (sum(model(one).square().sum() for one in pair) / 2).backward()
        if pair is windows[0]:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
    return model.weight.flatten().tolist()


def test_an_overflow_is_left_out_on_every_process_and_windows_can_be_made_by_no_sync_too() -> None:
    def work() -> tuple[dict[int, Any], dict[str, list[float]]]:
        return {stage: steps_with_an_overflow(stage) for stage in (1, 2, 3)}, weights_after_windows()

    for steps, weights in in_world(2, work, PATIENCE):
        norm = pytest.approx(5**0.5)
        for stage, told in steps.items():
            assert told == [(False, 0.05, norm, True), (True, 0.05, torch.inf, False), (False, 0.025, norm, True)], (
                stage
            )
        assert weights["no_sync"] == weights["accumulate"] == pytest.approx(windows_of_plain_torch(), rel=1e-5)


def refused(work: Any) -> str:
    with pytest.raises(AccelError) as caught:
        work()
    return str(caught.value)


def answers_to_a_request_to_stop() -> list[bool]:
    """Asked after each micro-step of a window of two, in the first of which a scheduler asks the run to end."""
    ours = accelerator(steps=2, zero_stage=2)
    model, optimizer, _ = line(ours)
    answers = [ours.should_stop()]
    for number in range(2):
        with ours.accumulate(model):
            ours.backward(model(torch.ones(1, 4)).sum())
            optimizer.step()
        if number == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        answers.append(ours.should_stop())
    return answers


def test_a_run_stops_between_windows_where_it_can_be_saved() -> None:
    assert in_world(1, answers_to_a_request_to_stop, PATIENCE) == [[False, False, True]]


def prepared(**plugin: Any) -> tuple[Accelerator, nn.Module, Any]:
    ours = accelerator(steps=1, zero_stage=2, **plugin)
    model = nn.Linear(4, 1)
    return (ours, *ours.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1)))


def told_by_a_loop_that_the_engine_cannot_run() -> dict[str, str]:
    inputs = torch.ones(2, 4)
    ours, model, optimizer = prepared()
    told = {"step": refused(optimizer.step)}
    told |= {"clip without gradients": refused(lambda: ours.clip_grad_norm_(model.parameters(), 1.0))}
    ours.backward(model(inputs).sum())
    loss = model(inputs).sum()
    told |= {
        "again": refused(lambda: ours.backward(loss)),
        "zero_grad": refused(optimizer.zero_grad),
        "save": refused(lambda: ours.save_state("nowhere")),
        "closure": refused(lambda: optimizer.step(lambda: loss)),
        "some weights": refused(lambda: ours.clip_grad_norm_([model.bias], 1.0)),
        "other norm": refused(lambda: ours.clip_grad_norm_(model.parameters(), 1.0, norm_type=1)),
        "value": refused(lambda: ours.clip_grad_value_(model.parameters(), 1.0)),
        "uneven": refused(lambda: ours.join_uneven_inputs([model]).__enter__()),
        "second": refused(lambda: ours.prepare(nn.Linear(1, 1), torch.optim.SGD(nn.Linear(1, 1).parameters()))),
    }
    ours, model, _ = prepared(gradient_clipping=1.0)
    ours.backward(model(inputs).sum())
    told["clip twice"] = refused(lambda: ours.clip_grad_norm_(model.parameters(), 0.5))
    return told


def told_by_prepare() -> dict[str, str]:
    one, other = nn.Linear(1, 1), nn.Linear(1, 1)
    optimizers = [torch.optim.SGD(model.parameters()) for model in (one, other)]
    both = torch.optim.SGD([*one.parameters(), *other.parameters()])
    loss = one(torch.ones(1, 1)).sum()
    compiling = Accelerator(cpu=True, dynamo_backend="eager", deepspeed_plugin=DeepSpeedPlugin(zero_stage=3))
    return {
        "two engines": refused(lambda: accelerator(zero_stage=1).prepare(one, other, *optimizers)),
        "one optimizer of two": refused(lambda: accelerator(zero_stage=1).prepare(one, other, both)),
        "optimizer alone": refused(lambda: accelerator(zero_stage=1).prepare(optimizers[0])),
        "no engine": refused(lambda: accelerator(zero_stage=1).backward(loss)),
        "stage 0": refused(lambda: accelerator(zero_stage=0).prepare(one, optimizers[0])),
        "fp16": refused(lambda: accelerator("fp16", zero_stage=1).prepare(one, optimizers[0])),
        "whole weights": refused(lambda: accelerator().prepare(one, torch.optim.LBFGS(one.parameters()))),
        "nan_policy": refused(lambda: Accelerator(nan_policy="skip", deepspeed_plugin=DeepSpeedPlugin())),
        "two configurations": refused(lambda: accelerator(zero_stage=1, hf_ds_config="no.json")),
        "two counts": refused(lambda: accelerator(steps=2, gradient_accumulation_steps=4)),
        # Last, for it takes the weights into an engine before it is refused.
        "compile": refused(lambda: compiling.prepare(one, optimizers[0])),
    }


def test_what_the_engine_cannot_do_is_refused_by_name() -> None:
    def work() -> dict[str, str]:
        return {**told_by_a_loop_that_the_engine_cannot_run(), **told_by_prepare()}

    (told,) = in_world(1, work, PATIENCE)
    expected = {
        "again": "backward() ran again before optimizer.step(): DeepSpeed's engine cannot see gradients accumulated by hand",
        "step": "optimizer.step() found no gradients of a whole window",
        "zero_grad": "zero_grad() before step() would throw gradients away",
        "clip without gradients": "clip_grad_norm_() found no gradients of a whole window",
        "save": "save_state() came in the middle of an accumulation window",
        "closure": "SGD.step(closure) cannot run under DeepSpeed",
        "some weights": "1 weights are missing",
        "other norm": "got norm_type=1",
        "value": "clips by norm only",
        "uneven": "join_uneven_inputs is not possible under DeepSpeed",
        "second": "trains one model with one optimizer; train several",
        "clip twice": "the script clips to 0.5 and gradient_clipping is 1.0",
        "two engines": "trains one model with one optimizer; train several",
        "one optimizer of two": "this SGD steps weights of 2 of the models",
        "optimizer alone": "this SGD steps weights of 0 of the models",
        "no engine": "backward() needs DeepSpeed's engine, and none was started",
        "stage 0": "zero_stage=0 shards nothing that ddp does not",
        "fp16": "DeepSpeed's engine does not train in fp16 on CPUs; use bf16",
        "whole weights": "DeepSpeed hands flat shards to LBFGS",
        "compile": "torch.compile and ZeRO 3 do not go together",
        "nan_policy": "its engine leaves such steps out by itself",
        "two configurations": "no.json: cannot be read: No such file or directory",
        "two counts": "gradient_accumulation_steps=2 and gradient_accumulation_steps=4 in a plugin",
    }
    assert {name: told[name] for name, part in expected.items() if part not in told[name]} == {}
    assert told.keys() == expected.keys()
