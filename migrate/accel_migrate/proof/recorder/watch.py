"""Watches torch: every batch, loss, step and change of mode, with the line of the project that it came from."""

from __future__ import annotations

import atexit
import builtins
import functools
import os
import random
import socket
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from accel_migrate.proof.recorder.chance import seed_all, seed_python, state
from accel_migrate.proof.recorder.forms import forms
from accel_migrate.proof.recorder.gradients import completed, watched
from accel_migrate.proof.recorder.journal import Journal, callers, fills_up
from accel_migrate.proof.recorder.observed import Observer
from accel_migrate.proof.recorder.on_cpu import pretend
from accel_migrate.proof.recorder.pretended import pretend_world
from accel_migrate.proof.recorder.printed import TeeStream
from accel_migrate.proof.recorder.samples import fingerprint, fingerprints, leaves
from accel_migrate.proof.recorder.step_trace import StepTrace

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
NEAR = ("localhost", "127.", "::1", "0.0.0.0")


def before_torch(settings: dict[str, Any]) -> None:
    """What holds for every Python process: one seed, and a note of the host that was asked for last."""
    seed_python(settings["seed"])
    setattr(builtins, "__accel_magic__", lambda number: None)  # noqa: B010  stands for a magic of a notebook
    asked = Path(settings["folder"], "network")
    only_read = tuple(settings["data"])

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and only_read and isinstance(arguments[0], str) and (arguments[2] or 0) & WRITES:
            if os.path.realpath(arguments[0]).startswith(only_read):
                raise PermissionError(f"{arguments[0]} is named by --data, and what is named so is only read")
        if event == "socket.getaddrinfo":
            host = str(arguments[0])
            if not is_near(host):
                asked.write_text(f"{host}:{arguments[1]}")

    sys.addaudithook(heard)


def is_near(host: str) -> bool:
    """Whether a host is this machine."""
    return host.startswith((*NEAR, socket.gethostname())) or host in ("None", "")


def install(torch: Any, settings: dict[str, Any]) -> Watch:
    """Begin to watch. `torch` is handed in: this module is also read where it is not installed."""
    world, rank = (int(os.environ.get(name, default)) for name, default in (("WORLD_SIZE", "1"), ("RANK", "0")))
    pretended = settings.get("pretended", 0)
    journal = Journal(Path(settings["folder"]), Path(settings["copy"]), 1 if pretended else world, rank)
    watch = Watch(torch, journal, settings["steps"])
    if settings.get("trace"):
        watch.trace(StepTrace(torch, journal, world), only=bool(pretended))
    if pretended:
        pretend_world(torch, pretended)
    if settings["on_cpu"]:
        pretend(torch)
    if settings["observe"]:
        watch.observer = Observer(torch, Path(settings["folder"]), Path(settings["copy"]))
        watch.observer.begin()
    if settings["still"]:
        sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(_forget_gradients)
    if settings["nudged"]:
        sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(functools.partial(_nudge, torch))
    watch.losses()
    watch.loaders()
    watch.optimizers()
    watch.modes()
    seed_all(torch, settings["seed"])
    watch.seeds()
    sys.stdout = TeeStream(sys.stdout, watch.heard)
    sys.stderr = TeeStream(sys.stderr, watch.heard)
    atexit.register(watch.ended)
    return watch


def _forget_gradients(optimizer: Any, args: Any, kwargs: Any) -> None:
    """Holds the weights still."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def _nudge(torch: Any, optimizer: Any, args: Any, kwargs: Any) -> None:
    """Moves every weight to a neighbouring number, every other one up."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.is_floating_point():
                flat = torch.arange(parameter.numel(), device=parameter.device).reshape(parameter.shape)
                aim = torch.where(flat % 2 == 0, float("inf"), float("-inf")).to(parameter.dtype)
                parameter.data.copy_(torch.nextafter(parameter.data, aim))


def _wrapped(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """`wrapper(plain, *args, **kwargs)` in the place of a function."""
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def function(*args: Any, **kwargs: Any) -> Any:
        return wrapper(plain, *args, **kwargs)

    setattr(owner, name, function)


class Watch:
    """Writes down what happens, and ends the process when it has its losses."""

    def __init__(self, torch: Any, journal: Journal, steps: int) -> None:
        self.torch = torch
        self.journal = journal
        self.steps = steps
        self.counted = 0
        self.mark: int | None = None  # the state of chance when the latest batch came, or the latest loss
        self.evaluated = False  # a batch came without gradients since the latest loss
        self.evaluation_draws = False  # random numbers, beside those of the loader
        self.stepped: dict[int, Any] = {}
        self.setting_mode = False
        self.told: set[str] = set()
        self.observer: Observer | None = None
        self.step: StepTrace | None = None  # while operators are recorded
        self.only_steps = False  # the run is over when they are

    def trace(self, step: StepTrace, only: bool) -> None:
        """Record the operators of the first steps; with `only`, end the process after them."""
        self.step, self.only_steps = step, only
        tensor, function = self.torch.Tensor, self.torch.autograd.Function
        self.register_hook = tensor.register_hook

        def noted(kind: str) -> Callable[..., Any]:
            def called(plain: Any, *args: Any, **kwargs: Any) -> Any:
                if self.journal.place(direct=True) is not None:
                    step.note(kind)
                return plain(*args, **kwargs)

            return called

        def read(plain: Any, read_tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if step.mode is not None and not step.inside:
                step.note("read", values=[step.known(read_tensor)])
            return plain(read_tensor, *args, **kwargs)

        def applied(plain: Any, *args: Any, **kwargs: Any) -> Any:
            owner = plain.args[0]
            if step.recording and not getattr(owner, "__module__", "").startswith(("torch.", "accel_runtime.")):
                step.note("function", name=getattr(owner, "__name__", ""))
            return plain(*args, **kwargs)

        def unseen(plain: Any, *args: Any, **kwargs: Any) -> Any:
            with step.suspended():
                return plain(*args, **kwargs)

        for name in ("register_hook", "register_post_accumulate_grad_hook"):
            _wrapped(tensor, name, noted("hook"))
        for name in ("register_backward_hook", "register_full_backward_hook", "register_full_backward_pre_hook"):
            _wrapped(self.torch.nn.Module, name, noted("hook"))
        _wrapped(self.torch, "compile", noted("compiled"))
        for name in ("tolist", "numpy", "__array__"):
            _wrapped(tensor, name, read)
        _wrapped_class_method(function, "apply", applied)
        _wrapped(sys.modules["torch.nn.parallel.distributed"].DistributedDataParallel, "_sync_module_buffers", unseen)

    def losses(self) -> None:
        def backward(plain: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if fills_up():
                return self._completed(functools.partial(plain, tensors, *args, **kwargs))
            every = [tensors] if self.torch.is_tensor(tensors) else list(tensors)
            if self.observer is not None:
                self.observer.look_around()
                self.observer.trace(self.journal.place(), every)
            if self.counted == self.steps:
                self._observed()
                if self.step is not None:
                    self.step.finish()
                self.journal.leave(cut=True, parameters=self._parameters())
            with self._suspended():
                for loss in every:
                    self._loss(loss)
                self.counted += 1
                with self._exchanged(every, any(given is not None for given in [*args[:1], *kwargs.values()])):
                    done = plain(tensors, *args, **kwargs)
                self.mark, self.evaluated, self.evaluation_draws = state(self.torch), False, False
            return done

        _wrapped(self.torch.autograd, "backward", backward)

    @contextmanager
    def _suspended(self) -> Iterator[None]:
        with self.step.suspended() if self.step else nullcontext():
            yield

    @contextmanager
    def _exchanged(self, losses: list[Any], directed: bool) -> Iterator[None]:
        """Around a backward pass of the steps that are recorded: what it does to the gradients."""
        if self.step is None or not self.step.recording:
            yield
            return
        values = [self.step.known(loss) for loss in losses]
        with watched(self.torch, self.step.parameters(), self.register_hook) as rows:
            yield
        self.step.forget([each.grad for each in self.step.parameters() if each.grad is not None])
        self.step.note("backward", values=values, directed=directed, gradients=rows)

    def _completed(self, fill_up: Callable[[], Any]) -> Any:
        """The end of a backward pass that the runtime makes: gradients are what they are after it."""
        with self._suspended():
            done = fill_up()
            if self.step is not None and self.step.recording:
                passes = [event for event in self.step.events if event["kind"] == "backward"]
                completed(self.torch, self.step.parameters(), passes[-1]["gradients"])
                self.step.forget([each.grad for each in self.step.parameters() if each.grad is not None])
        return done

    def _loss(self, loss: Any) -> None:
        self.journal.note(
            "loss",
            value=float(loss.detach().double().sum().item()).hex(),
            forms=forms(loss),
            random=self.mark is not None and state(self.torch) != self.mark,
            device=loss.device.type,
            gpus=self.torch.cuda.device_count(),
        )

    def loaders(self) -> None:
        data = self.torch.utils.data
        iterator = data.dataloader._BaseDataLoaderIter
        asked: dict[str, int] = {}
        passes: set[int] = set()

        def made(plain: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            plain(loader, *args, **kwargs)
            kind = type(getattr(loader, "sampler", None)).__name__
            self.journal.note("loader", direct=True, batch_size=loader.batch_size, sampler=kind)

        def indices(plain: Any, batches: Any) -> Any:
            chosen = plain(batches)
            batches.__dict__.setdefault("_chosen", deque()).append(chosen)
            asked["state"] = state(self.torch)  # a sampler may have drawn; what is drawn from here on is the loading's
            return chosen

        def batch(plain: Any, batches: Any) -> Any:
            number = batches.__dict__.setdefault("_number", len(passes) + 1)
            if number not in passes:
                passes.add(number)
                weakref.finalize(batches, self.journal.note, "left", number=number).atexit = False
            self.evaluation_draws |= self.evaluated and state(self.torch) != self.mark
            with self._suspended():
                try:
                    given = plain(batches)
                except StopIteration:
                    self.journal.note("pass", number=number)
                    raise
                # Workers are asked ahead; what they were asked for first comes first.
                chosen = batches.__dict__.get("_chosen")
                loading_draws = state(self.torch) != asked.get("state")
                self._batch(given, chosen.popleft() if chosen else None, number, loading_draws)
            self._traced(given)
            return given

        def order(plain: Any, sampler: Any) -> Any:
            """A DistributedSampler shuffles by a seed of its own, and no other sampler comes to its order."""
            alone = sampler.shuffle and sampler.num_replicas == 1
            return iter(data.RandomSampler(sampler.dataset)) if alone else plain(sampler)

        _wrapped(data.distributed.DistributedSampler, "__iter__", order)
        _wrapped(data.DataLoader, "__init__", made)
        _wrapped(iterator, "_next_index", indices)
        _wrapped(iterator, "__next__", batch)

    def _traced(self, batch: Any) -> None:
        if self.step is not None and self.journal.place() is not None:
            self.step.batch(list(leaves(self.torch, batch)), self.torch.is_grad_enabled())
            if self.only_steps and self.step.state == "done":
                self.journal.leave(cut=True, parameters="")

    def _batch(self, batch: Any, chosen: Any, number: int, random: bool) -> None:
        self.evaluated = self.evaluated or not self.torch.is_grad_enabled()
        known = isinstance(chosen, list) and None not in chosen
        rows = fingerprints(self.torch, batch, len(chosen)) if isinstance(chosen, list) else []
        self.journal.note(
            "batch",
            indices=[index if isinstance(index, int) else repr(index) for index in chosen] if known else None,
            rows=rows,
            number=number,  # of the pass over a loader
            trains=self.torch.is_grad_enabled(),
            random=random,
        )
        self.mark = state(self.torch)

    def optimizers(self) -> None:
        optim, note = self.torch.optim, self.journal.note

        def made(plain: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
            plain(optimizer, *args, **kwargs)
            note("optimizer", direct=True, rates=_rates(optimizer))
            if self.step is not None:
                self.step.optimizers.append(optimizer)

        def noted(kind: str) -> Callable[..., Any]:
            def function(plain: Any, *args: Any, **kwargs: Any) -> Any:
                note(kind)
                return plain(*args, **kwargs)

            return function

        def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
            self.stepped[id(optimizer)] = optimizer
            if self.step is not None:
                self.step.pause()
            note("step", rates=_rates(optimizer), gradient=self._gradient(optimizer))

        def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
            if self.step is not None:
                self.step.took(optimizer)

        _wrapped(optim.Optimizer, "__init__", made)
        _wrapped(optim.Optimizer, "zero_grad", noted("zero_grad"))
        sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(before_step)
        sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(after_step)
        for scheduler in vars(optim.lr_scheduler).values():
            if isinstance(scheduler, type) and "step" in vars(scheduler) and scheduler.__name__ != "Optimizer":
                _wrapped(scheduler, "step", noted("schedule"))
        clipping = self.torch.nn.utils
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            _wrapped(clipping.clip_grad, name, noted("clip"))
            setattr(clipping, name, getattr(clipping.clip_grad, name))

    def _gradient(self, optimizer: Any) -> str:
        """The norm over all parameters that have a gradient, to the bit."""
        torch, total = self.torch, 0.0
        with torch.no_grad():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        grad = parameter.grad.coalesce().values() if parameter.grad.is_sparse else parameter.grad
                        total += float(torch.linalg.vector_norm(grad, dtype=torch.float64)) ** 2
        return float(total**0.5).hex()

    def _parameters(self) -> str:
        every = [p for optimizer in self.stepped.values() for group in optimizer.param_groups for p in group["params"]]
        return fingerprint(self.torch, every) if every else ""

    def modes(self) -> None:
        nn = self.torch.nn

        def train(plain: Any, module: Any, mode: bool = True) -> Any:
            if self.setting_mode:
                return plain(module, mode)  # of a part: the whole was noted
            self.setting_mode = True
            try:
                self.journal.note("mode", training=bool(mode))
                return plain(module, mode)
            finally:
                self.setting_mode = False

        def normalised(plain: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
            if module.training:
                self._fact("batch norm")
            return plain(module, *args, **kwargs)

        def entered(plain: Any, region: Any) -> Any:
            if region._enabled:
                self._fact("autocast")
            return plain(region)

        _wrapped(nn.Module, "train", train)
        _wrapped(nn.modules.batchnorm._BatchNorm, "forward", normalised)  # SyncBatchNorm has a forward of its own
        _wrapped(self.torch.amp.autocast_mode.autocast, "__enter__", entered)

    def _fact(self, name: str) -> None:
        if name not in self.told:
            self.told.add(name)
            self.journal.note("fact", name=name)

    def seeds(self) -> None:
        def seeded(plain: Any, *args: Any, **kwargs: Any) -> Any:
            value = [*args, *kwargs.values(), None][0]
            self.journal.note("seed", direct=True, value=repr(value))
            return plain(*args, **kwargs)

        _wrapped(random, "seed", seeded)
        _wrapped(self.torch, "manual_seed", seeded)
        if "numpy" in sys.modules:
            _wrapped(sys.modules["numpy"].random, "seed", seeded)

    def heard(self, line: str) -> None:
        if any(frame.f_globals.get("__name__") == "warnings" for frame in callers()):
            return  # of a library, about how it is called
        place = str(self.journal.copy)
        facts = {"evaluation": self.evaluated, "random": self.evaluation_draws}
        self.journal.note("printed", text=line.replace(place, "."), **facts)

    def _observed(self) -> None:
        if self.observer is not None:
            self.observer.write()

    def ended(self) -> None:
        self._observed()
        if self.step is not None:
            self.step.finish()
        self.journal.close(cut=False, parameters=self._parameters())


def _wrapped_class_method(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    plain = owner.__dict__[name].__func__

    def function(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return wrapper(functools.partial(plain, cls), *args, **kwargs)

    setattr(owner, name, classmethod(function))


def _rates(optimizer: Any) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups if "lr" in group]
