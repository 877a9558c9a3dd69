"""The seam of strategies: how models are spread over processes, and how their gradients come together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from accel_runtime.collectives import Collectives
from accel_runtime.options import Options

_COMPILED_HERE = "_compiled_by_accelerator"


@dataclass(frozen=True, slots=True)
class Bundle:
    """What one call of `prepare` got; strategies that shard weights need models and optimizers together."""

    models: tuple[Module, ...] = ()
    optimizers: tuple[Optimizer, ...] = ()
    loaders: tuple[DataLoader[Any], ...] = ()
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    announce: Callable[[str], None] = lambda name: None  # returns when all processes mean the same


@dataclass(frozen=True, slots=True)
class OwnStates:
    """What `Strategy.own_state` gave on each process that saved; each is read when it is asked for."""

    processes: int
    of_rank: Callable[[int], Any]


class Strategy(ABC):
    """One way to spread. Adding one: a file here, a line in the table of `resolve.py`, a test, its docs."""

    name: str
    exchanges_gradients = False
    exchanges_stepped = False  # whether that is so for all weights of a prepared optimizer, without their model
    needs_group = False  # whether even one process alone must be a group of processes
    shards = False  # whether `kept_state`, optimizers and gradients are `DTensor`s
    keeps_optimizers = False  # whether `own_state` has the optimizers, whose `state_dict()` is then not saved
    weights_reset_optimizers = False  # whether loading weights undoes the load of an optimizer, which then comes after
    saves_in_windows = True  # whether a state can be saved while gradients are being accumulated
    guards_steps = False  # whether it leaves out steps by itself whose gradients are not finite
    precisions: Mapping[str, str] = {}  # import paths of those that it runs in a way of its own

    @classmethod
    def made_for(cls, options: Options, settings: tuple[object, ...]) -> Self:
        """`settings` are the script's handlers and plugins."""
        return cls()

    def place(self, model: Module, device: torch.device) -> None:
        """Moves a model that was not prepared yet to where it will be trained."""
        model.to(device)

    @abstractmethod
    def prepare(self, bundle: Bundle, evaluation: bool = False) -> Bundle:
        """The models wrapped and the optimizers fitted to them, each at its place in the bundle."""

    def compiled(self, model: Module, settings: dict[str, Any]) -> Module:
        """The prepared model, compiled where that serves this strategy."""
        if bare(model) is not model:  # by the script, and torch would make a mere function of it
            return model
        whole: Any = torch.compile(model, **settings)
        vars(whole)[_COMPILED_HERE] = True
        return whole  # type: ignore[no-any-return]

    def counts_steps(self, scheduler: Any) -> bool:
        """Whether the schedule counts steps of the optimizer, and not batches of one process."""
        return False

    def forget(self) -> None:  # noqa: B027 most strategies hold on to nothing
        """Lets go of what was prepared."""

    def keep(self, models: tuple[Module, ...], optimizers: tuple[Optimizer, ...]) -> None:  # noqa: B027 as above
        """Lets go of what was prepared but for these, the same on every process."""

    def backward(self, scaled: Callable[..., None] | None) -> Callable[..., None] | None:
        """How a loss goes backward, given how the precision does it; None is `loss.backward()`."""
        return scaled

    def unwrap(self, model: Module) -> Module:
        """The model that the user wrote."""
        return model

    def defer(self, models: tuple[Module, ...], deferred: bool) -> None:  # noqa: B027 nothing to turn off where nothing is exchanged
        """Turns the exchange of gradients off, or on again."""

    def weights(self, parameters: Iterable[Tensor] | Tensor) -> list[Tensor]:
        """The parameters as they are now: a strategy may have put others in the place of what the script holds."""
        return [parameters] if isinstance(parameters, Tensor) else list(parameters)

    @cached_property
    def clip_norm(self) -> Callable[[Iterable[Tensor] | Tensor, float, float], Tensor]:
        """Torch's own where weights are whole, looked up once: a method that hands on would be a call more at every step."""
        return torch.nn.utils.clip_grad_norm_

    def clip_value(self, parameters: Iterable[Tensor] | Tensor, clip_value: float) -> None:
        torch.nn.utils.clip_grad_value_(parameters, clip_value)

    def state_dict(self, model: Module) -> dict[str, Any]:
        """The whole state on every process, with the keys that the module itself gives."""
        return model.state_dict()

    def refuse_parts(self, value: Any) -> None:  # noqa: B027 most strategies keep everything whole
        """Refuses a value to be written to one file when this process holds only a part of a tensor in it."""

    def kept_state(self, model: Module) -> dict[str, Any]:
        """What a checkpoint keeps of the model: whole, or sharded as `DTensor`s."""
        return self.state_dict(self.unwrap(model))

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """What a checkpoint keeps of the optimizer; a collective where it is sharded, whole on those that write."""
        return optimizer.state_dict()

    def whole_optimizer_state(self, collectives: Collectives) -> Callable[[Optimizer], dict[str, Any]] | None:
        """How a prepared optimizer's `state_dict()` is whole on every process; None where the optimizer's own is."""
        return None

    def load_state_dict(self, model: Module, state: dict[str, Any]) -> None:
        """Takes over what `kept_state` gave, after it was checked to fit."""
        self.unwrap(model).load_state_dict(state)

    def shapes(self, model: Module) -> dict[str, torch.Size | None]:
        """The whole shape of every tensor in the model's state; None for what is no tensor."""
        state = self.unwrap(model).state_dict()
        return {key: value.shape if isinstance(value, Tensor) else None for key, value in state.items()}

    def group_sizes(self, optimizer: Optimizer) -> list[int]:
        """How many weights of the model each group of the optimizer has."""
        return [len(group["params"]) for group in optimizer.param_groups]

    def own_state(self) -> Any:
        """What a checkpoint keeps for this process beside models and optimizers, of tensors, numbers and containers."""
        return None

    def check_own_state(self, states: OwnStates) -> None:  # noqa: B027 most strategies keep nothing
        """Refuses what does not fit, before anything is changed."""

    def load_own_state(self, states: OwnStates) -> None:  # noqa: B027 as above
        """Takes over what `own_state` gave, before gradients and weights are loaded."""

    def sync_next_backward(self, model: Module) -> None:  # noqa: B027 as above
        """Makes the next backward exchange gradients though the forward ran under `no_sync`."""

    def register_forward_method(self, model: Module, name: str) -> None:  # noqa: B027 as above
        """Makes the backward pass of a loss that this method made exchange gradients, as that of a forward does."""

    def join(self, models: list[Module]) -> AbstractContextManager[Any]:
        """A region in which processes may run out of data at different times."""
        return nullcontext()

    @contextmanager
    def no_sync(self, model: Module) -> Any:
        self.defer((model,), True)
        try:
            yield
        finally:
            self.defer((model,), False)


def given(model: Module) -> Module:
    """The model as the script gave it to `prepare`: compiled if the script did that, but not if the Accelerator did."""
    return bare(model) if _COMPILED_HERE in vars(model) else model


def bare(model: Module) -> Module:
    """The model inside a compiled one."""
    inner = model.__dict__.get("_modules", {}).get("_orig_mod")
    return model if inner is None else inner


def trains(model: Module) -> bool:
    """Whether the model has anything to train."""
    return any(weight.requires_grad for weight in model.parameters())
