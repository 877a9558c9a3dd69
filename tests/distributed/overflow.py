"""Two steps in fp16, in the first of which one process overflows."""

from __future__ import annotations

import copy

import torch
from accel_runtime import Accelerator
from torch import nn


def steps_with_an_overflow(accelerator: Accelerator, model: nn.Module) -> list[tuple[bool, int, bool]]:
    """After each: whether it was skipped, how far the schedule is, and whether the weights are still the first ones."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    before = copy.deepcopy(accelerator.get_state_dict(model))
    seen = []
    for overflows in (True, False):
        loss = model(torch.ones(1, 2)).sum()
        if overflows and accelerator.process_index == 1:
            loss = loss * float("inf")
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        unchanged = all(torch.equal(before[key], value) for key, value in accelerator.get_state_dict(model).items())
        seen.append((accelerator.optimizer_step_was_skipped, scheduler.last_epoch, unchanged))
    return seen
