"""Data parallel: every process holds the whole model, and gradients are averaged while backward runs."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.join import Join
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from accel_runtime.errors import UsageError
from accel_runtime.handlers import DistributedDataParallelKwargs, chosen, pick
from accel_runtime.options import Options
from accel_runtime.strategies import Bundle, OwnStates, Strategy, bare, trains
from accel_runtime.strategies.batch_norms import with_synced_batch_norms
from accel_runtime.strategies.communication import register_hook
from accel_runtime.strategies.ddp_freezing import exchange_anew, thawed, trained
from accel_runtime.strategies.ddp_sparse import exchange_rows, sparse_weights
from accel_runtime.strategies.ddp_unused import complete
from accel_runtime.strategies.forward_override import forward_override
from accel_runtime.strategies.layout import layout_of, rehearse

# Settings that torch's wrapper does not take: they are done around it.
OURS = ("comm_hook", "comm_wrapper", "comm_state_option", "sync_batchnorm")


class DataParallel(DistributedDataParallel):
    """Torch's own, through which the attributes and methods of the model can be reached.

    Methods other than `forward` run on the bare model, where gradients are not exchanged, unless they are registered.
    """

    ran = False
    passes: int | None = None  # backward passes since the last forward; or its gradients stay on this process

    def __init__(self, module: Module, **settings: Any) -> None:
        super().__init__(module, **settings)
        self.__weights = list(module.parameters())
        self.__asked = [weight.requires_grad for weight in self.__weights]
        self.trained = trained(module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not self.ran:
            self.ran = True
        if torch.is_grad_enabled():
            self._follow_freezing()
            vars(self)["passes"] = 0 if self.require_backward_grad_sync else None  # past torch's own way, which is slow
        return super().forward(*args, **kwargs)  # type: ignore[no-untyped-call]

    def _follow_freezing(self) -> None:
        """Weights that the script froze or thawed since: gradients of those that it trains now are averaged.

        While it trains none of them, as one half of a GAN in the other's turn, there is nothing to average.
        """
        asked = [weight.requires_grad for weight in self.__weights]
        if asked != self.__asked and any(asked):
            self.__asked = asked
            self.trained = trained(self.module)
            exchange_anew(self)

    def register(self, name: str) -> None:
        """From now on the method of that name runs as the model's forward does."""
        method = getattr(self.module, name)

        @functools.wraps(method)
        def through_forward(*args: Any, **kwargs: Any) -> Any:
            with forward_override(self.module, method):
                return self(*args, **kwargs)

        vars(self)[name] = through_forward

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        """What only the model has is set there, where its forward reads it."""
        own = vars(self)
        if "trained" in own and name not in own and not hasattr(type(self), name) and hasattr(self.module, name):
            setattr(self.module, name, value)
        else:
            super().__setattr__(name, value)

    def __str__(self) -> str:
        return str(self.module)


class DataParallelContainer(DataParallel):
    """That of a Sequential, or of whatever else has layers by number or by key."""

    def __getitem__(self, index: Any) -> Any:
        return self.module[index]

    def __len__(self) -> int:
        return len(self.module)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.module)


class Ddp(Strategy):
    name = "ddp"
    exchanges_gradients = True

    def __init__(self, settings: DistributedDataParallelKwargs) -> None:
        self.settings = settings
        self.unseen: list[DataParallel] = []  # models whose forward has not run yet
        self.wrapped: list[weakref.ref[DataParallel]] = []
        self.frozen: list[weakref.ref[Module]] = []  # models with nothing to train, which are left as they are

    @classmethod
    def made_for(cls, options: Options, settings: tuple[object, ...]) -> Self:
        return cls(pick(settings, DistributedDataParallelKwargs, DistributedDataParallelKwargs()))

    def prepare(self, bundle: Bundle, evaluation: bool = False) -> Bundle:
        stepped = {
            id(w) for optimizer in bundle.optimizers for group in optimizer.param_groups for w in group["params"]
        }
        models = tuple(self._wrap(model, evaluation, stepped) for model in bundle.models)
        return Bundle(models, bundle.optimizers, bundle.loaders)

    def backward(self, scaled: Callable[..., None] | None) -> Callable[..., None]:
        def backward(loss: Tensor, **kwargs: Any) -> None:
            models = self._await(loss)
            if scaled is None:
                loss.backward(**kwargs)  # type: ignore[no-untyped-call]
            else:
                scaled(loss, **kwargs)
            for model in models:
                complete(model)
            if self.unseen:
                self._check_unseen()
            if self.frozen:
                self._check_frozen()

        return backward

    def unwrap(self, model: Module) -> Module:
        model = bare(model)
        return bare(model.module) if isinstance(model, DistributedDataParallel) else model

    def defer(self, models: tuple[Module, ...], deferred: bool) -> None:
        for model in map(bare, models):
            if not isinstance(model, DistributedDataParallel):
                if trains(model):
                    raise UsageError(
                        f"{type(model).__name__} was not prepared, so its gradients would stay apart on each process; "
                        "pass it to prepare() and use what that returns"
                    )
                continue
            model.require_backward_grad_sync = not deferred

    def sync_next_backward(self, model: Module) -> None:
        wrapped = bare(model)
        if isinstance(wrapped, DistributedDataParallel):
            wrapped.require_backward_grad_sync = True
            if isinstance(wrapped, DataParallel):
                vars(wrapped)["passes"] = 1  # DDP awaits gradients from forward on, which has already run
            else:
                wrapped.reducer.prepare_for_backward([])

    def register_forward_method(self, model: Module, name: str) -> None:
        wrapped = bare(model)
        if isinstance(wrapped, DataParallel):
            wrapped.register(name)

    def join(self, models: list[Module]) -> AbstractContextManager[Any]:
        joined: list[Any] = [one for one in map(bare, models) if isinstance(one, DistributedDataParallel)]
        return Join(joined) if joined else nullcontext()

    def own_state(self) -> list[list[str]] | None:
        return [layout_of(model) for model in self._ordered()] or None

    def load_own_state(self, states: OwnStates) -> None:
        if states.processes == dist.get_world_size():
            for model, layout in zip(self._ordered(), states.of_rank(dist.get_rank()) or ()):
                rehearse(model, layout)

    def _ordered(self) -> list[DataParallel]:
        """The models whose gradients are added up to the bit as the order in messages has it; two are one either way.

        On the CPU only: other devices do not promise as much, and to read the order takes memory there.
        """
        if dist.get_world_size() == 2 or self.settings.static_graph or self.settings.comm_hook != "no":
            return []
        here = [model for reference in self.wrapped if (model := reference()) is not None]
        return [model for model in here if all(weight.device.type == "cpu" for weight in model.parameters())]

    def _await(self, loss: Tensor) -> list[DataParallel]:
        """DDP awaits the gradients of one loss from forward on; here those of each. Returns the models that do."""
        models = [m for reference in self.wrapped if (m := reference()) is not None and m.passes is not None]
        for model in models:
            if model.passes:
                model.reducer._rebuild_buckets()  # as before each forward pass: it takes the order of one loss
                model.reducer.prepare_for_backward([loss])
            vars(model)["passes"] += 1
        return models

    def _check_unseen(self) -> None:
        """A model that has gradients but never ran was called by another name than the one `prepare` returned."""
        self.unseen = [model for model in self.unseen if not model.ran]
        for model in self.unseen:
            if any(weight.grad is not None for weight in model.parameters()):
                raise UsageError(
                    f"{type(model.module).__name__} was trained through the model that went into prepare(), so its "
                    "gradients were not exchanged; use the model that prepare() returned, and register_forward_method() "
                    "where another method of it than forward makes the loss"
                )

    def _check_frozen(self) -> None:
        """A model that had nothing to train when it was prepared, and no optimizer, and has gradients now."""
        for model in [each for reference in self.frozen if (each := reference()) is not None]:
            if any(weight.requires_grad and weight.grad is not None for weight in model.parameters()):
                raise UsageError(
                    f"{type(model).__name__} was frozen when it was prepared and trains now, so its gradients were not "
                    "exchanged; prepare it together with its optimizer, or freeze it after prepare()"
                )

    def _wrap(self, model: Module, evaluation: bool, stepped: set[int]) -> Module:
        if evaluation or isinstance(model, DistributedDataParallel):
            return model
        if not trains(model) and stepped.isdisjoint(map(id, model.parameters())):
            self.frozen.append(weakref.ref(model))
            return model
        if self.settings.sync_batchnorm:
            model = with_synced_batch_norms(model)
        _lay_out_buffers(model)
        settings = {name: value for name, value in chosen(self.settings).items() if name not in OURS}
        # Without device_ids: torch would move every input to the device, and lengths that one process leaves on the CPU too.
        has_layers = all(hasattr(type(model), name) for name in ("__getitem__", "__len__", "__iter__"))
        with thawed(model):
            wrapped = (DataParallelContainer if has_layers else DataParallel)(model, **settings)
        register_hook(wrapped, self.settings)
        if self.settings.comm_hook == "no" and sparse_weights(model) and dist.get_backend() != "gloo":
            exchange_rows(wrapped)
        self.unseen.append(wrapped)
        self.wrapped = [reference for reference in self.wrapped if reference() is not None] + [weakref.ref(wrapped)]
        return wrapped


def _lay_out_buffers(model: Module) -> None:
    """Buffers in memory as torch can send them (pytorch#68407): a view such as `table.unsqueeze(0).transpose(0, 1)`, in which
    sizes of 1 have other strides than usual, and one that was expanded fail when torch writes into them what it received.
    """
    for buffer in model.buffers():
        if buffer.layout is not torch.strided:
            continue
        expanded = any(size > 1 and stride == 0 for size, stride in zip(buffer.shape, buffer.stride()))
        if expanded or buffer.is_contiguous():
            usual = buffer.detach().contiguous().view(-1).view(buffer.shape)
            if usual.stride() != buffer.stride():
                buffer.data = usual
