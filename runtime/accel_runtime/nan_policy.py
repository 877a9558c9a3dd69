"""What to do when gradients are not finite: stop, leave the step out, or say so. All processes do the same."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from accel_runtime.errors import AccelError, ConfigError

POLICIES = ("raise", "skip", "warn")


class NotFinite(AccelError, ArithmeticError):
    """Gradients became infinite or not a number."""


@dataclass(frozen=True, slots=True)
class NanPolicy:
    """`on_any` asks whether something holds on any process: where gradients are not exchanged, only one may see it."""

    name: str
    on_any: Callable[[bool], bool]

    def allows(self, optimizer: Optimizer) -> bool:
        """Whether to take the step."""
        if not self.on_any(not _finite(optimizer)):
            return True
        told = f"the gradients of {_odd_one(optimizer)} are not finite"
        if self.name == "raise":
            raise NotFinite(f"{told}; nan_policy='raise' stops here, before the weights are spoiled")
        warnings.warn(f"{told}; the step was {'left out' if self.name == 'skip' else 'taken'}", stacklevel=4)
        return self.name == "warn"


def policy_of(
    name: str | None, on_any: Callable[[bool], bool], scales: bool, guarded: bool = False
) -> NanPolicy | None:
    """The policy of that name; None asks for none and costs nothing."""
    if name is None:
        return None
    if name not in POLICIES:
        raise ConfigError(f"nan_policy={name!r} is unknown; use {', '.join(POLICIES)}")
    if scales:
        raise ConfigError("nan_policy is not for fp16: overflows are usual there, and its loss scaler leaves them out")
    if guarded:
        raise ConfigError(
            "nan_policy is not for this strategy: its engine leaves such steps out by itself, and "
            "accelerator.optimizer_step_was_skipped says so"
        )
    return NanPolicy(name, on_any)


def _finite(optimizer: Optimizer) -> bool:
    gradients = [gradient for _, gradient in _gradients(optimizer)]
    # One number for all of them: it is not finite if any part is not.
    return not gradients or bool(torch.nn.utils.get_total_norm(gradients).isfinite())


def _odd_one(optimizer: Optimizer) -> str:
    odd = [place for place, gradient in _gradients(optimizer) if not gradient.isfinite().all()]
    return f"{odd[0]} of {type(optimizer).__name__}" if odd else f"another process's {type(optimizer).__name__}"


def _gradients(optimizer: Optimizer) -> list[tuple[str, Tensor]]:
    return [
        (f"weight {index} {tuple(weight.shape)} in group {number}", weight.grad)
        for number, group in enumerate(optimizer.param_groups)
        for index, weight in enumerate(group["params"])
        if weight.grad is not None
    ]
