"""Data parallel: every process holds the whole model, and gradients are averaged while backward runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.join import Join
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import UninitializedParameter
from torch.optim import Optimizer

from accel_runtime.errors import UsageError
from accel_runtime.handlers import DistributedDataParallelKwargs, chosen, pick
from accel_runtime.held import reference
from accel_runtime.options import Options
from accel_runtime.strategies import Bundle, OwnStates, Strategy, bare, trains
from accel_runtime.strategies.batch_norms import with_synced_batch_norms
from accel_runtime.strategies.communication import register_hook
from accel_runtime.strategies.ddp_exchange import Exchange
from accel_runtime.strategies.ddp_exchanges import Exchanges
from accel_runtime.strategies.ddp_loose import Loose, refuse_own
from accel_runtime.strategies.ddp_sparse import exchange_rows, sparse_weights
from accel_runtime.strategies.ddp_steps import watch_steps
from accel_runtime.strategies.ddp_strays import Forgotten, refuse_strays
from accel_runtime.strategies.ddp_uneven import Uneven
from accel_runtime.strategies.layout import layout_of, rehearse

# Settings that torch's DDP does not take, or does not need here.
OURS = ("comm_hook", "comm_wrapper", "comm_state_option", "sync_batchnorm", "find_unused_parameters", "static_graph")


class Ddp(Strategy):
    name = "ddp"
    exchanges_gradients = True
    exchanges_stepped = True
    passes = 0  # backward passes of all Accelerators so far: the optimizer of one may step what another has prepared

    def __init__(self, settings: DistributedDataParallelKwargs) -> None:
        self.settings = settings
        self.device = torch.device("cpu")
        self.has_exchanged = False
        self.forget()

    @classmethod
    def made_for(cls, options: Options, settings: tuple[object, ...]) -> Self:
        return cls(pick(settings, DistributedDataParallelKwargs, DistributedDataParallelKwargs()))

    def forget(self) -> None:
        # A static graph may give a weight several gradients in one pass, which can only be averaged when all are there.
        self.exchanges = Exchanges(at_the_end=self.settings.static_graph)
        # What is prepared is held by those who prepare it, and here weakly.
        self._optimizers: list[Callable[[], Optimizer]] = []
        self._apart: list[Callable[[], Module]] = []  # models left as they are: for evaluation, and torch's own DDP
        self._frozen: list[Callable[[], Module]] = []  # models with nothing to train, likewise
        self._loose: Loose | None = None
        self._forgotten = Forgotten()
        self.looked: list[int] | None = None  # how many weights the optimizers' groups had at the last look for strays

    def prepare(self, bundle: Bundle, evaluation: bool = False) -> Bundle:
        self.device = bundle.device
        self._optimizers += map(reference, bundle.optimizers)
        for optimizer in bundle.optimizers:
            watch_steps(optimizer, lambda: Ddp.passes)
        models = tuple(self._exchanged(model, evaluation) for model in bundle.models)
        self._exchange_loose()
        self._forgotten.follow(weight for exchange in self.exchanges.all for weight in exchange.weights)
        self.has_exchanged |= bool(self.exchanges.all)
        self.looked = None
        return Bundle(models, bundle.optimizers, bundle.loaders)

    def keep(self, models: tuple[Module, ...], optimizers: tuple[Optimizer, ...]) -> None:
        kept = {*map(id, map(bare, models)), *map(id, optimizers)}
        self._optimizers = [one for one in self._optimizers if id(one()) in kept]
        self._apart = [one for one in self._apart if id(one()) in kept]
        self._frozen = [one for one in self._frozen if id(one()) in kept]
        self.exchanges.of_models = [one for one in self.exchanges.of_models if id(one.module) in kept]

    def backward(self, scaled: Callable[..., None] | None) -> Callable[..., None]:
        def backward(loss: Tensor, **kwargs: Any) -> None:
            Ddp.passes += 1
            self._look_for_strays(loss)
            self.exchanges.before(loss)
            if scaled is None:
                loss.backward(**kwargs)  # type: ignore[no-untyped-call]
            else:
                scaled(loss, **kwargs)
            self.exchanges.after()
            if self._frozen:
                self._check_frozen()

        return backward

    def unwrap(self, model: Module) -> Module:
        model = bare(model)
        return bare(model.module) if isinstance(model, DistributedDataParallel) else model

    def defer(self, models: tuple[Module, ...], deferred: bool) -> None:
        for model in map(bare, models):
            owner = self._owner(model)
            if owner is not None:
                owner.require_backward_grad_sync = not deferred
            elif trains(model):
                raise UsageError(
                    f"{type(model).__name__} was not prepared, so its gradients would stay apart on each process; "
                    "pass it to prepare()"
                )
        if self.exchanges.loose is not None:
            self.exchanges.loose.require_backward_grad_sync = not deferred

    def sync_next_backward(self, model: Module) -> None:
        self.defer((model,), False)
        if isinstance(given := bare(model), DistributedDataParallel):
            given.reducer.prepare_for_backward([])  # torch's own awaits gradients from its forward on

    @contextmanager
    def join(self, models: list[Module]) -> Iterator[None]:
        if not any(self._owner(bare(model)) for model in models):
            yield
            return
        self.exchanges.uneven = Uneven(self.exchanges.all, self.exchanges.take_part)
        try:
            with Join([self.exchanges.uneven]):
                yield
        finally:
            self.exchanges.uneven = None

    def own_state(self) -> list[list[str]] | None:
        return [layout_of(exchange) for exchange in self._ordered()] or None

    def load_own_state(self, states: OwnStates) -> None:
        if states.processes == dist.get_world_size():
            for exchange, layout in zip(self._ordered(), states.of_rank(dist.get_rank()) or ()):
                rehearse(exchange, layout)

    def _ordered(self) -> list[Exchange]:
        """The models whose gradients are added up to the bit as the order in messages has it; two are one either way.

        On the CPU only: other devices do not promise as much, and to read the order takes memory there.
        """
        if dist.get_world_size() == 2 or self.settings.comm_hook != "no":
            return []
        return [each for each in self.exchanges.all if all(weight.device.type == "cpu" for weight in each.weights)]

    def _exchanged(self, model: Module, evaluation: bool) -> Module:
        """The model itself, whose gradients are averaged from now on."""
        inner = bare(model)
        if evaluation or isinstance(inner, DistributedDataParallel):
            self._apart.append(reference(inner))
            return model
        if not trains(inner) and self._stepped().keys().isdisjoint(map(id, inner.parameters())):
            self._frozen.append(reference(inner))
            return model
        if self.settings.sync_batchnorm:
            model = with_synced_batch_norms(model)
            inner = bare(model)
        _lay_out_buffers(inner)
        self.exchanges.of_models.append(self._exchange(inner))
        return model

    def _exchange(self, model: Module) -> Exchange:
        exchange = Exchange(model, **{name: value for name, value in chosen(self.settings).items() if name not in OURS})
        register_hook(exchange, self.settings)
        if self.settings.comm_hook == "no" and sparse_weights(model) and dist.get_backend() != "gloo":
            exchange_rows(exchange)
        return exchange

    def _exchange_loose(self) -> None:
        """Those weights of optimizers that no model has; their model may still come."""
        owned = {id(weight) for weight in self._weights_of_models()}
        weights = [
            weight
            for weight in self._stepped().values()
            if id(weight) not in owned
            and not isinstance(weight, UninitializedParameter)
            and weight.device.type == self.device.type
        ]
        before = self.exchanges.loose
        if [id(weight) for weight in weights] != [id(weight) for weight in (before.weights if before else [])]:
            refuse_own(weights)
            self._loose = Loose(weights) if weights else None
            self.exchanges.loose = self._exchange(self._loose) if self._loose else None

    def _stepped(self) -> dict[int, Tensor]:
        """The weights of all prepared optimizers, by identity."""
        return {id(w): w for one in self._optimizers for group in one().param_groups for w in group["params"]}

    def _weights_of_models(self) -> Iterator[Tensor]:
        for exchange in self.exchanges.of_models:
            yield from exchange.weights
        for model in [*self._apart, *self._frozen]:
            yield from model().parameters()

    def _look_for_strays(self, loss: Tensor) -> None:
        """At the first exchange of gradients, when an optimizer has got more weights, and after free_memory()."""
        sizes = [len(group["params"]) for one in self._optimizers for group in one().param_groups]
        forgotten = self.has_exchanged and not self.exchanges.all
        if sizes == self.looked or not (self.exchanges.due or forgotten):
            return
        loose = self.exchanges.loose.weights if self.exchanges.loose else []
        exchanged = {id(weight) for weight in [*self._weights_of_models(), *loose]}
        refuse_strays(loss, exchanged, self._stepped().keys())
        self.looked = sizes

    def _owner(self, model: Module) -> DistributedDataParallel | None:
        """The exchange of a model; torch's own DDP has it inside."""
        if isinstance(model, DistributedDataParallel):
            return model
        return next((exchange for exchange in self.exchanges.of_models if exchange.module is model), None)

    def _check_frozen(self) -> None:
        """A model that had nothing to train when it was prepared, and no optimizer, and has gradients now."""
        for model in (one() for one in self._frozen):
            if any(weight.requires_grad and weight.grad is not None for weight in model.parameters()):
                raise UsageError(
                    f"{type(model).__name__} was frozen when it was prepared and trains now, so its gradients were not "
                    "exchanged; prepare it together with its optimizer, or freeze it after prepare()"
                )


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
