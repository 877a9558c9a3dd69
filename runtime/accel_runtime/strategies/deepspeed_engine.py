"""DeepSpeed's engine behind the face of an optimizer: it holds the gradients, clips them and steps."""

from __future__ import annotations

import importlib.util
import logging
import os
import warnings
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from accel_runtime.errors import ConfigError, UsageError
from accel_runtime.process_group import keep_groups
from accel_runtime.proxy import Proxy
from accel_runtime.strategies.deepspeed_config import Config
from accel_runtime.strategies.deepspeed_model import keep_whole, refuse_written
from accel_runtime.strategies.deepspeed_state import load_optimizer, take_weights, whole_optimizer
from accel_runtime.world import world_from

# Any: the engine ships no types.
Engine = Any
# What these do to a number depends on those around it.
WHOLE = tuple(getattr(torch.optim, name) for name in ("Adafactor", "LBFGS", "Muon") if hasattr(torch.optim, name))


def start_engine(model: Module, optimizer: Optimizer, config: Config) -> Engine:
    """The engine around the model, which stays the user's own, and its optimizer, fitted to the shards."""
    device = next(model.parameters()).device.type
    deepspeed = _deepspeed(device, os.environ)
    if config.get("fp16", {}).get("enabled") and not deepspeed.accelerator.get_accelerator().is_fp16_supported():
        raise ConfigError(f"DeepSpeed does not train in fp16 on this {device}; use mixed_precision bf16 or no")
    with quiet():
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)
    keep_whole(model)
    keep_groups()
    engine.set_gradient_accumulation_boundary(True)
    return engine


def _deepspeed(device: str, environ: MutableMapping[str, str]) -> Any:
    if importlib.util.find_spec("deepspeed") is None:
        raise ConfigError(
            "strategy deepspeed needs its package; pip install deepspeed, where torch is already installed"
        )
    if device == "cpu":
        # Else it takes the GPU of a machine that has one, though the run is for the CPU.
        environ.setdefault("DS_ACCELERATOR", "cpu")
    # The engine reads it, and neither srun nor a plain `python` sets it.
    environ.setdefault("LOCAL_RANK", str(world_from(environ).local_rank))
    import deepspeed

    # Compiled at the first start, for a faster all-reduce in inference on CPUs; training goes through torch.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # It calls functions of torch under names that are going away; nobody who trains can do anything about that.
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
    return deepspeed


@contextmanager
def quiet() -> Iterator[None]:
    """While it starts the engine tells of itself on stdout, where the results of scripts go."""
    log = logging.getLogger("DeepSpeed")
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(logging.WARNING)


def check_optimizer(optimizer: Optimizer) -> None:
    """Refuses optimizers of torch that look at whole weights, and says so of those that nobody knows."""
    kind = type(optimizer)
    told = f"DeepSpeed hands flat shards to {kind.__name__}; an optimizer that looks at whole weights trains otherwise then"
    if isinstance(optimizer, WHOLE):
        raise UsageError(f"{told}, and this one does; use AdamW, or train with ddp")
    if kind.__module__.partition(".")[0] not in ("torch", "deepspeed"):
        warnings.warn(f"{told}: make sure that this one takes each number by itself", stacklevel=6)


def gradient_norm(engine: Engine) -> Tensor:
    """The norm of the whole gradients, which lie in shards on all processes; every process must ask."""
    zero = engine.optimizer
    if engine.zero_optimization_stage() == 3:
        norm = _combined(zero._get_norm_groups())
    else:
        norm = _combined([zero.scaled_global_norm()])
    # The engine says that a norm is not finite by a negative number.
    return torch.where(norm < 0, torch.inf, norm / zero.loss_scale)


def _combined(norms: list[Any]) -> Tensor:
    parts = torch.stack([torch.as_tensor(norm, dtype=torch.float32) for norm in norms])
    return torch.where((parts < 0).any(), -1.0, parts.norm())


class EngineOptimizer(Proxy):
    """Is the user's optimizer in every other respect, which the engine steps over shards.

    `holds_gradients`: the engine has some. `pending`: they are those of a whole window, and wait for a step.
    """

    engine: Engine
    weights: tuple[tuple[Parameter, ...], ...]  # those of each group, before the engine put shards in their place
    holds_gradients = False
    pending = False
    skipped = False

    def __init__(self, optimizer: Optimizer, engine: Engine, weights: tuple[tuple[Parameter, ...], ...]) -> None:
        super().__init__(optimizer)
        self.__dict__.update(engine=engine, weights=weights)

    def backward(self, loss: Tensor, retain_graph: bool = False) -> None:
        """Gradients go into the engine; outside of an accumulation window they may not pile up there."""
        if self.pending:
            raise UsageError(
                "backward() ran again before optimizer.step(): DeepSpeed's engine cannot see gradients accumulated by "
                "hand; add the losses up, or accumulate with `with accelerator.accumulate(model):`"
            )
        # The engine's own forward would do both; so it does not matter what of the model the loss runs through.
        self.engine.optimizer.clear_backward_seen_flag()
        start = loss.register_hook(lambda _: self.engine._backward_prologue())  # type: ignore[no-untyped-call]
        try:
            # Not by the engine's own division: the loss is already weighed by its share in the window.
            self.engine.backward(loss, retain_graph=retain_graph, scale_wrt_gas=False)
        finally:
            start.remove()
        self.holds_gradients = True
        self.pending = self.engine.is_gradient_accumulation_boundary()

    def clip(self, max_norm: float) -> Tensor:
        """The norm of the gradients, which the next step clips to `max_norm`; every process must ask."""
        # Zero is the engine's word for no clipping at all.
        self.engine.optimizer.clip_grad = 0.0 if max_norm == float("inf") else max_norm
        return gradient_norm(self.engine)

    def step(self, closure: Callable[[], Any] | None = None) -> None:
        """Clips and steps."""
        if closure is not None:
            raise UsageError(
                f"{type(self.behind).__name__}.step(closure) cannot run under DeepSpeed: the engine steps once for each "
                "backward(); use another optimizer, or ddp"
            )
        if not self.pending:
            raise UsageError(
                "optimizer.step() found no gradients of a whole window in DeepSpeed's engine; call accelerator.backward(loss) "
                "before each step, and not loss.backward()"
            )
        refuse_written(weight for group in self.weights for weight in group)
        take_weights(self.engine)
        self.engine.step()
        self.holds_gradients = self.pending = False
        self.skipped = not self.engine.was_step_applied()
        self.engine.optimizer.clip_grad = self.engine.gradient_clipping()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """The engine has done it after its step."""
        if self.pending:
            raise UsageError(
                "zero_grad() before step() would throw gradients away, which DeepSpeed's engine cannot do; decide before "
                "backward() whether to leave a batch out"
            )

    def state_dict(self) -> dict[str, Any]:
        """As the user's optimizer would give it without shards; every process must ask."""
        return whole_optimizer(self.engine, self.behind, self.weights)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        load_optimizer(self.engine, self.behind, self.weights, state)
