"""Gradients that are not finite: every process does the same about them."""

import math
import warnings

import pytest
import torch
from accel_runtime import Accelerator
from accel_runtime.errors import ConfigError
from accel_runtime.nan_policy import NotFinite
from torch import nn

from tests.distributed.worlds import in_world


def poisoned(policy: str | None) -> dict:
    """One good step, then one in which the last process alone has a bad batch."""
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, nan_policy=policy)
    model = nn.Linear(2, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    told, steps = "", []
    for value in (1.0, math.nan if accelerator.is_last_process else 1.0, 1.0):
        accelerator.backward(model(torch.full((2, 2), value)).sum())
        try:
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                optimizer.step()
        except NotFinite as error:
            told = str(error)
        told = told or next((str(warning.message) for warning in seen), "")
        steps.append(optimizer.step_was_skipped)
        optimizer.zero_grad()
    return {"finite": bool(accelerator.gather(next(model.parameters())).isfinite().all()), "told": told, "steps": steps}


def test_every_process_follows_the_policy_though_one_alone_saw_the_batch() -> None:
    worlds = in_world(2, lambda: {policy: poisoned(policy) for policy in (None, "raise", "skip", "warn")})
    for told in worlds:
        assert told[None] == {"finite": False, "told": "", "steps": [False] * 3}
        assert told["raise"]["finite"] and "weight 0 (1, 2) in group 0 of SGD are not finite" in told["raise"]["told"]
        assert told["skip"]["finite"] and told["skip"]["steps"] == [False, True, False]
        assert "the step was left out" in told["skip"]["told"]
        assert not told["warn"]["finite"] and "the step was taken" in told["warn"]["told"]


def test_an_unknown_policy_and_one_under_fp16_are_refused() -> None:
    with pytest.raises(ConfigError, match="nan_policy='ignore' is unknown; use raise, skip, warn"):
        Accelerator(cpu=True, nan_policy="ignore")
    with pytest.raises(ConfigError, match="nan_policy is not for fp16"):
        Accelerator(cpu=True, nan_policy="skip", mixed_precision="fp16")
