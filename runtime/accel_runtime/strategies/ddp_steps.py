"""Steps by gradients that `accelerator.backward` did not make: `loss.backward()` exchanges nothing, and its gradients differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from accel_runtime.errors import UsageError


def watch_steps(optimizer: Optimizer, passes: Callable[[], int]) -> None:
    """Refuses such a step, unless the gradients are the same on all processes; `passes` counts calls of `backward`."""
    if not hasattr(optimizer, "register_step_pre_hook"):
        return
    last = passes()

    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if passes() == last and not _closure(args, kwargs) and not _alike(optimizer):
            raise UsageError(
                f"{type(optimizer).__name__}.step() has gradients that differ from process to process, and "
                "accelerator.backward() did not run since the last step; call accelerator.backward(loss), not loss.backward()"
            )

    def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        nonlocal last
        if _closure(args, kwargs) and passes() == last:
            raise UsageError(
                f"the closure of {type(optimizer).__name__}.step() did not call accelerator.backward(loss), so its gradients "
                "stayed apart on each process; call it there, not loss.backward()"
            )
        last = passes()

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)


def _closure(args: Any, kwargs: Any) -> bool:
    return (args[1] if len(args) > 1 else kwargs.get("closure")) is not None  # the first is the optimizer itself


def _alike(optimizer: Optimizer) -> bool:
    """Whether all processes have the same gradients; every process must ask."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    if not weights:
        return True
    own = torch.stack([_digest(weight) for weight in weights]).nan_to_num()
    everyone = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, own)
    return all(torch.allclose(one, own, rtol=1e-4, atol=0) for one in everyone)


def _digest(weight: Tensor) -> Tensor:
    """What is positive in its gradient and what is negative: figures that no gradient has stand for a missing one."""
    if weight.grad is None:
        return torch.tensor([-1.0, 1.0], device=weight.device)
    values = (weight.grad._values() if weight.grad.is_sparse else weight.grad).detach().float()
    return torch.stack([values.clamp(min=0).sum(), values.clamp(max=0).sum()])
