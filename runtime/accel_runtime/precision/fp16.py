"""float16: losses are scaled up so that small gradients survive, and steps with an overflow are skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self
from weakref import WeakSet

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from accel_runtime.accumulation import Accumulation
from accel_runtime.errors import UsageError
from accel_runtime.handlers import AutocastKwargs, GradScalerKwargs, Handler, pick
from accel_runtime.optimizer import PreparedOptimizer
from accel_runtime.precision.autocast import Autocast


class Fp16(Autocast):
    name = "fp16"
    dtype = torch.float16
    scales = True

    def __init__(self, device_type: str, autocast: AutocastKwargs, scaler: GradScalerKwargs) -> None:
        super().__init__(device_type, autocast)
        self.scaler = torch.amp.GradScaler(device_type, **vars(scaler))
        self.backward = self._scaled_backward
        self._stepped = False
        # Whose gradients have their true size until the next backward pass; one that the script lets go of is not kept.
        self._unscaled: WeakSet[Optimizer] = WeakSet()
        self._has_optimizer = False

    @classmethod
    def made_for(cls, device_type: str, handlers: tuple[Handler, ...]) -> Self:
        autocast = pick(handlers, AutocastKwargs, AutocastKwargs())
        return cls(device_type, autocast, pick(handlers, GradScalerKwargs, GradScalerKwargs()))

    def check(self, model: Module) -> None:
        narrow = [
            name for name, weight in model.named_parameters() if weight.requires_grad and weight.dtype is self.dtype
        ]
        if narrow:
            raise UsageError(
                f"mixed_precision='fp16' trains weights in float32, and {len(narrow)} of {type(model).__name__} are "
                f"float16 ({', '.join(narrow[:3])}{', ...' if len(narrow) > 3 else ''}); load the model in float32"
            )

    def prepare_optimizer(self, optimizer: Optimizer, accumulation: Accumulation) -> PreparedOptimizer:
        if not hasattr(optimizer, "register_step_post_hook"):
            raise UsageError(
                f"{type(optimizer).__name__} is no torch optimizer, so nobody could tell whether its step was skipped "
                "under mixed_precision='fp16'; use bf16 or full precision"
            )
        self._has_optimizer = True
        return ScaledOptimizer(optimizer, accumulation, self)

    def unscale(self, optimizers: tuple[PreparedOptimizer, ...]) -> None:
        """Once after a backward pass, whoever asks; a step leaves gradients at their true size too."""
        for prepared in optimizers:
            optimizer = prepared.optimizer
            if optimizer in self._unscaled or prepared.accumulation.holding or not _has_gradients(optimizer):
                continue
            self._scale(_gradients(optimizer))
            self.scaler.unscale_(optimizer)
            self._unscaled.add(optimizer)

    def step(self, optimizer: Optimizer) -> None:
        if not _has_gradients(optimizer):
            optimizer.step()  # the scaler would miss what it is to check
            return
        if optimizer not in self._unscaled:
            self._scale(_gradients(optimizer))
        self.scaler.step(optimizer)
        self._unscaled.add(optimizer)
        self._stepped = True

    def update(self) -> None:
        """Adapts the scale once all optimizers have stepped; in between, their gradients still carry the old one."""
        if self._stepped:
            self.scaler.update()
            self._stepped = False

    def state(self) -> dict[str, Any]:
        self.update()
        return self.scaler.state_dict()

    def load_state(self, state: dict[str, Any]) -> None:
        self.scaler.load_state_dict(state)
        self._unscaled.clear()
        self._stepped = False

    def _scaled_backward(self, loss: Tensor, **kwargs: Any) -> None:
        if not self._has_optimizer:
            raise UsageError(
                "backward() scales the loss under mixed_precision='fp16', and no optimizer was prepared that would "
                "scale the gradients back; pass the optimizer to prepare() and use what that returns"
            )
        self.update()
        self._scale_again()
        self.scaler.scale(loss).backward(**kwargs)  # type: ignore[no-untyped-call]

    def _scale_again(self) -> None:
        """Scales the gradients that a backward pass adds to: those clipped before another pass, or not zeroed after a step."""
        scale = self._scale(gradient for optimizer in self._unscaled for gradient in _gradients(optimizer))
        if scale is not None:
            self.scaler.update(scale)  # the same scale: what the scaler knows of these gradients is out of date
        self._unscaled.clear()

    @torch.no_grad()
    def _scale(self, gradients: Iterable[Tensor]) -> Tensor | None:
        """Scales those that have their true size, each once: several optimizers may step one model; gives the scale."""
        true = {id(gradient) for optimizer in self._unscaled for gradient in _gradients(optimizer)}
        held = {id(gradient): gradient for gradient in gradients if id(gradient) in true}
        scale: Tensor | None = None
        for gradient in held.values():
            scale = self.scaler.scale(torch.ones((), device=gradient.device)) if scale is None else scale
            gradient.mul_(scale.to(gradient.device))
        return scale


class ScaledOptimizer(PreparedOptimizer):
    """Steps through the scaler, and knows whether the step was taken."""

    precision: Fp16

    def __init__(self, optimizer: Optimizer, accumulation: Accumulation, precision: Fp16) -> None:
        super().__init__(optimizer, accumulation)
        self.__dict__.update(precision=precision, _taken=True)
        optimizer.register_step_post_hook(self._note_step)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        iterations = self.accumulation.iterations
        iterations.work += 1
        iterations.due = False
        if self.accumulation.holding:
            return None
        if closure is not None:
            raise UsageError(
                f"{type(self.optimizer).__name__}.step(closure) cannot run under mixed_precision='fp16': the closure "
                "runs backward several times on one scale; use bf16 or full precision"
            )
        self.__dict__["_taken"] = False
        self.precision.step(self.optimizer)
        self.__dict__["step_was_skipped"] = not self._taken
        return None

    def _note_step(self, *_: Any) -> None:
        self.__dict__["_taken"] = True


def _gradients(optimizer: Optimizer) -> Iterator[Tensor]:
    weights = (weight for group in optimizer.param_groups for weight in group["params"])
    return (weight.grad for weight in weights if weight.grad is not None)


def _has_gradients(optimizer: Optimizer) -> bool:
    return any(True for _ in _gradients(optimizer))
