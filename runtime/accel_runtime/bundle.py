"""What `prepare` was given, sorted by kind, and what became of it."""

from __future__ import annotations

import functools
import gc
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from accel_runtime.accumulation import Accumulation
from accel_runtime.configuration import TorchDynamoPlugin
from accel_runtime.data.lengths import check_alike
from accel_runtime.data.loader import LoaderSettings, PreparedLoader, prepared_loader
from accel_runtime.errors import UsageError
from accel_runtime.held import Held, Loosened
from accel_runtime.nan_policy import NanPolicy
from accel_runtime.optimizer import PreparedOptimizer
from accel_runtime.precision.autocast import unwrap_forward
from accel_runtime.proxy import Proxy
from accel_runtime.resolve import Session
from accel_runtime.scheduler import PreparedScheduler
from accel_runtime.strategies import Bundle, trains


@dataclass(frozen=True, slots=True)
class Choices:
    """What the script asked for when it made the Accelerator."""

    autocast_forward: bool = True
    step_scheduler_with_optimizer: bool = True
    schedule_skipped_steps: bool = False
    dynamo: TorchDynamoPlugin | None = None
    nan_policy: NanPolicy | None = None


class Prepared:
    """Everything one Accelerator has prepared, in the order in which it came."""

    def __init__(self, session: Session, accumulation: Accumulation, loaders: LoaderSettings, choices: Choices) -> None:
        self._session = session
        self._accumulation = accumulation
        self.loader_settings = loaders
        self.choices = choices
        self.models: list[Module] = []
        self.optimizers: list[PreparedOptimizer] = []
        self.loaders: list[PreparedLoader] = []
        self.schedulers: list[PreparedScheduler] = []
        # Under the identity of what was given and of what was returned: preparing either again changes nothing.
        self._known: dict[int, Held] = {}
        self._count = 0  # of all that were prepared
        self._trains = False  # whether anything was that takes part in training

    def prepare(self, objects: Sequence[Any], placed: Sequence[bool], evaluation: bool = False) -> list[Any]:
        """The prepared objects in the order of `objects`."""
        objects = [self._own(thing) for thing in objects]
        fresh = self._fresh(objects)
        still = {id(thing) for thing, moves in zip(objects, placed) if not moves}
        if not evaluation and any(
            is_optimizer(thing) or (isinstance(thing, Module) and trains(thing)) for thing in fresh
        ):
            self._forget_unheld()
            fresh = self._fresh(objects)  # a loader whose prepared form went with the function that had it
        for thing in fresh:
            if isinstance(thing, Module):
                self._fit_model(thing, moves=id(thing) not in still)
        bundle = Bundle(
            models=tuple(thing for thing in fresh if isinstance(thing, Module)),
            optimizers=tuple(thing for thing in fresh if is_optimizer(thing)),
            loaders=tuple(thing for thing in fresh if isinstance(thing, DataLoader)),
            device=self._session.device,
            announce=self._session.collectives.announce,
        )
        self._take(bundle, self._session.strategy.prepare(bundle, evaluation), still)
        # Schedulers last: they hold on to prepared optimizers.
        for thing in fresh:
            if is_scheduler(thing):
                self._remember(thing, self._scheduler(thing), self.schedulers, self._scheduler)
        return list(map(self._result, objects))

    def _fresh(self, objects: Iterable[Any]) -> list[Any]:
        return list({id(thing): thing for thing in objects if id(thing) not in self._known}.values())

    def beside(self, loader: Any) -> PreparedLoader:
        """A loader that the script goes on having as it is, sharded for one pass."""
        if not isinstance(loader, DataLoader):
            raise UsageError(f"whole_batches shards a DataLoader, not a {type(loader).__name__}")
        found = prepared_loader(loader, replace(self.loader_settings, feed=None, seedable=False, stateful=False))
        if not self.loader_settings.dispatch:
            check_alike([found], self._session.collectives, "whole_batches()")
        return found

    def owners(self, weights: list[Tensor]) -> tuple[PreparedOptimizer, ...]:
        """The optimizers that step any of the weights."""
        wanted = {id(weight) for weight in weights}
        return tuple(
            optimizer for optimizer in self.optimizers if any(id(weight) in wanted for weight in _weights(optimizer))
        )

    def forget(self) -> None:
        for kept in (self.models, self.optimizers, self.loaders, self.schedulers, self._known):
            kept.clear()
        self._session.strategy.forget()

    def _forget_unheld(self) -> None:
        """Forgets what the script has let go of, as the folds of a cross validation before this one.

        Here and not when it is let go of: all processes must have the same, and meet here, where more begins to train. They
        meet the first time too: a file that all have read until then is not changed while one still reads it.
        """
        first, self._trains = not self._trains, True
        kinds: list[list[Any]] = [self.models, self.optimizers, self.schedulers]
        gather = self._session.collectives.gather_objects
        alike = len({tuple(sizes) for sizes in gather([len(kind) for kind in kinds])}) == 1
        if first or not alike:
            return
        before = [[self._known[id(thing)].number for thing in kind] for kind in kinds]
        optimizers = self._loosened([*self.optimizers, *self.schedulers, *self.loaders])
        gc.collect()
        self._hold(optimizers)
        # The script may hold parts of a model only, as of a ModuleList; what is stepped is trained.
        stepped = {id(weight) for optimizer in self.optimizers for weight in _weights(optimizer)}
        models = self._loosened([model for model in self.models if stepped.isdisjoint(map(id, model.parameters()))])
        blocks = self._accumulation.blocks.loosened()
        gc.collect()
        self._hold(models)
        self._accumulation.blocks.hold(blocks)
        alive = {self._known[id(thing)].number for kind in kinds for thing in kind}
        everywhere = [
            {number for number, *held in zip(numbers, *of_all) if all(held)}
            for numbers, of_all in zip(before, zip(*gather([[number in alive for number in kind] for kind in before])))
        ]
        for kind, kept in zip(kinds, everywhere):
            self._loosened([thing for thing in kind if self._known[id(thing)].number not in kept])
        self._session.strategy.keep(tuple(self.models), tuple(optimizer.optimizer for optimizer in self.optimizers))

    def _loosened(self, things: Iterable[Any]) -> list[Loosened]:
        """Lets go of them."""
        loosened = []
        for thing in things:
            held = self._known.pop(id(thing))
            self._known.pop(id(held.before), None)
            held.among[:] = [other for other in held.among if other is not thing]
            loosened.append(Loosened.of(held))
        return loosened

    def _hold(self, loosened: Iterable[Loosened]) -> None:
        """Those that are still there."""
        for one in loosened:
            if (held := one.held()) is not None:
                self._known[id(held.before)] = self._known[id(held.after)] = held
                held.among.append(held.after)
                held.among.sort(key=lambda thing: self._known[id(thing)].number)

    def _own(self, thing: Any) -> Any:
        """What another Accelerator has wrapped is wrapped anew: each has its own accumulation and precision."""
        foreign = id(thing) not in self._known and issubclass(type(thing), Proxy)
        return thing.behind if foreign else thing

    def _take(self, given: Bundle, spread: Bundle, still: set[int]) -> None:
        for before, model in zip(given.models, spread.models):
            self._fit_forward(model)
            self.loader_settings.iterations.watch(model)
            compiled: Any = self._compiled(model)
            compiled._is_accelerate_prepared = True
            self._remember(before, compiled, self.models, self._compiled)
        for bare, optimizer in zip(given.optimizers, spread.optimizers):
            _move_state(optimizer)
            self._session.hardware.follow(optimizer)
            self._remember(bare, self._stepped(optimizer), self.optimizers, self._stepped)
        for plain, loader in zip(given.loaders, spread.loaders):
            settings = replace(self.loader_settings, feed=None) if id(plain) in still else self.loader_settings
            self._remember(plain, prepared_loader(loader, settings), self.loaders)
        if given.models and not self.loader_settings.dispatch:
            # Only where the processes meet anyway: a loader may be prepared by one of them alone.
            check_alike(self.loaders[len(self.loaders) - len(given.loaders) :], self._session.collectives)

    def _stepped(self, optimizer: Optimizer) -> PreparedOptimizer:
        prepared = self._session.precision.prepare_optimizer(optimizer, self._accumulation)
        prepared.__dict__["nan_policy"] = self.choices.nan_policy
        whole_state = self._session.strategy.whole_optimizer_state(self._session.collectives)
        if whole_state is not None:
            prepared.__dict__["state_dict"] = functools.partial(whole_state, optimizer)
        return prepared

    def _compiled(self, model: Module) -> Module:
        plugin = self.choices.dynamo
        if plugin is None or plugin.backend is None:
            return model
        settings = {name: value for name, value in plugin.to_dict().items() if name != "use_regional_compilation"}
        return self._session.strategy.compiled(model, settings)

    def _fit_model(self, model: Module, moves: bool) -> None:
        _check_whole(model, self._session.world.size)
        if moves:
            with self._session.hardware.moving():
                self._session.strategy.place(model, self._session.device)
        self._session.precision.check(model)
        if any(weight.requires_grad for weight in model.parameters()):
            self._session.precision.convert(self._session.strategy.unwrap(model))

    def _fit_forward(self, model: Module) -> None:
        """After the strategy, which may give the model another class."""
        bare = self._session.strategy.unwrap(model)
        # An Accelerator of another precision may have had this model before.
        unwrap_forward(bare)
        if self.choices.autocast_forward:
            self._session.precision.wrap_forward(bare)

    def _scheduler(self, scheduler: LRScheduler) -> PreparedScheduler:
        known = self._known.get(id(scheduler.optimizer))
        if known is None:
            raise UsageError(
                f"{type(scheduler).__name__} steps a {type(scheduler.optimizer).__name__} that was not prepared; "
                "pass that optimizer to prepare() too, before its scheduler or together with it"
            )
        once = self.loader_settings.split or self._session.strategy.counts_steps(scheduler)
        return PreparedScheduler(
            scheduler,
            () if self.choices.schedule_skipped_steps else (known.after,),
            self._accumulation,
            self.loader_settings.iterations,
            times=1 if once else self._session.world.size,
            with_optimizer=self.choices.step_scheduler_with_optimizer,
        )

    def _remember(self, before: Any, after: Any, among: list[Any], again: Callable[[Any], Any] | None = None) -> None:
        among.append(after)
        self._count += 1
        self._known[id(before)] = self._known[id(after)] = Held(before, after, among, self._count, again)

    def _result(self, thing: Any) -> Any:
        if id(thing) in self._known:
            return self._known[id(thing)].after
        if thing is not None:  # a scheduler that this run does without
            _warn_unknown(type(thing).__name__)
        return thing


def is_optimizer(thing: Any) -> bool:
    """By class, or by shape: libraries bring optimizers that are not torch's."""
    return isinstance(thing, Optimizer) or _has(thing, "step", "zero_grad", "param_groups")


def is_scheduler(thing: Any) -> bool:
    """By class, or by shape: libraries bring schedulers that are not torch's."""
    return isinstance(thing, LRScheduler) or (_has(thing, "step", "optimizer") and not is_optimizer(thing))


def _weights(optimizer: Any) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def _has(thing: Any, *names: str) -> bool:
    return not isinstance(thing, Module) and all(hasattr(thing, name) for name in names)


def _check_whole(model: Module, processes: int) -> None:
    spread = set(getattr(model, "hf_device_map", {}).values())
    if processes > 1 and len(spread) > 1:
        raise UsageError(
            f"{type(model).__name__} is spread over {len(spread)} devices by its device_map, so {processes} processes "
            "cannot each train a copy; load it without device_map, or start one process"
        )


def _move_state(optimizer: Optimizer) -> None:
    """A state that was loaded before the weights were moved goes after them."""
    if getattr(optimizer, "state", None) and any(weight.device.type != "cpu" for weight in _weights(optimizer)):
        optimizer.load_state_dict(optimizer.state_dict())


def _warn_unknown(kind: str) -> None:
    warnings.warn(
        f"prepare() returned a {kind} as it was: it is not a model, an optimizer, a DataLoader or a scheduler. "
        "Data that does not come from a prepared DataLoader is neither moved nor sharded over the processes.",
        stacklevel=5,
    )
