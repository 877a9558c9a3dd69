"""Gradient accumulation: when the gradients of a window are due, and what each loss in it weighs."""

from __future__ import annotations

import warnings
import weakref
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Protocol

from torch.nn import Module

from accel_runtime.data.iteration import Iteration, Iterations
from accel_runtime.errors import ConfigError
from accel_runtime.keywords import KwargsHandler
from accel_runtime.unsupported import instead_of_member


@dataclass(frozen=True, slots=True)
class GradientAccumulationPlugin(KwargsHandler):
    """How many micro-steps make one step, and where a window ends.

    `sync_with_dataloader`: the last batch of a loader ends a window, however short. `weigh_last_window`: a window
    that is known to be shorter weighs as much as the others. `sync_each_batch`: gradients are exchanged at every
    micro-step, which costs time and saves memory. `adjust_scheduler` is accepted for scripts that pass it.
    """

    num_steps: int = 1
    adjust_scheduler: bool = True
    sync_with_dataloader: bool = True
    sync_each_batch: bool = False
    weigh_last_window: bool = True

    def __post_init__(self) -> None:
        check_steps(self.num_steps)


def check_steps(steps: int) -> int:
    if not isinstance(steps, int) or steps < 1:
        raise ConfigError(f"gradient_accumulation_steps={steps!r}; it counts micro-steps, so it is at least 1")
    return steps


class Deferral(Protocol):
    """Turns the exchange of gradients off for some models, and on again."""

    def __call__(self, models: tuple[Module, ...], deferred: bool) -> None: ...


class Accumulation:
    """The accumulation of one Accelerator.

    `sync` is what the latest block was: it keeps its value after the block. `holding` is true from the beginning of a
    block whose gradients are not yet due to the next block, or to the end of the pass over the loader. `divisor` is what
    `backward` divides the loss by.
    """

    def __init__(self, plugin: GradientAccumulationPlugin, iterations: Iterations, defer: Deferral | None) -> None:
        self.plugin = plugin
        self.iterations = iterations
        self.defer = None if plugin.sync_each_batch else defer
        self.set_steps(plugin.num_steps)
        self.sync = True
        self.holding = False
        self.inside = False  # whether a block is open
        self.held_in: Iteration | None = None
        self.has_optimizer = False
        self._warned = False
        self.blocks = Blocks(self)
        iterations.ended = self._release

    def __getattr__(self, name: str) -> Any:
        # Reached only by what is not there.
        raise AttributeError(instead_of_member("GradientState", name))

    @property
    def num_steps(self) -> int:
        return self.steps

    @property
    def sync_gradients(self) -> bool:
        return self.sync

    @sync_gradients.setter
    def sync_gradients(self, sync: bool) -> None:
        self.sync = sync
        self.holding, self.held_in = not sync, None

    def _set_sync_gradients(self, sync_gradients: bool) -> None:
        self.sync_gradients = sync_gradients

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the loader being iterated has handed out its last batch."""
        current = self.iterations.current
        return current is not None and current.is_last

    @property
    def in_dataloader(self) -> bool:
        return bool(self.iterations.stack)

    @property
    def active_dataloader(self) -> Any | None:
        """The prepared loader being iterated, of several the innermost."""
        current = self.iterations.current
        return None if current is None else current.loader

    @property
    def dataloader_references(self) -> list[Any]:
        """All prepared loaders being iterated, the innermost last; before them None, as Accelerate has it."""
        return [None, *(one.loader for one in self.iterations.stack)]

    @property
    def initialized(self) -> bool:
        return True

    @property
    def remainder(self) -> int:
        """The samples of the loader's last, short round; 0 where it is full, -1 where that is not known."""
        loader = self.active_dataloader
        return -1 if loader is None else int(loader.remainder)

    @property
    def plugin_kwargs(self) -> dict[str, Any]:
        """How it was set up, where that is not the default."""
        return replace(self.plugin, num_steps=self.steps).to_kwargs()

    @property
    def adjust_scheduler(self) -> bool:
        return self.plugin.adjust_scheduler

    @property
    def sync_with_dataloader(self) -> bool:
        return self.plugin.sync_with_dataloader

    def __repr__(self) -> str:
        """The lines that scripts log."""
        return (
            f"Sync Gradients: {self.sync}\n"
            f"At end of current dataloader: {self.end_of_dataloader}\n"
            f"Extra samples added: {self.remainder}\n"
            f"Gradient accumulation plugin: {self.plugin_kwargs}\n"
        )

    def warn_unused(self) -> None:
        """Once: the script divides its losses and holds back nothing, which it may have meant, or not."""
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"gradient_accumulation_steps={self.steps} divides every loss by {self.steps}, but no step is held back: "
                "the script runs backward() outside of `with accelerator.accumulate(model):`; put its step inside",
                stacklevel=3,
            )

    def set_steps(self, steps: int) -> None:
        self.steps = self.divisor = check_steps(steps)
        self.iterations.wants_end = steps > 1 and self.plugin.sync_with_dataloader

    def _release(self, iteration: Iteration) -> None:
        """A pass that has ended, by `break` too, holds nothing back any more: no micro-step follows in its window."""
        if self.held_in is iteration:
            self.holding = False


class Blocks(dict[tuple[Module, ...], "Block"]):
    """The block of each set of models, which counts its own micro-steps; made when it is first asked for."""

    def __init__(self, accumulation: Accumulation) -> None:
        super().__init__()
        self._accumulation = accumulation

    def __missing__(self, models: tuple[Module, ...]) -> Block:
        if self._accumulation.steps > 1 and not self._accumulation.has_optimizer:
            warnings.warn(
                "accumulate() holds back the steps of prepared optimizers, and none was prepared: pass the optimizer "
                "to prepare(), or step it only where accelerator.sync_gradients is true",
                stacklevel=3,
            )
        return self.setdefault(models, Block(self._accumulation, models))

    def loosened(self) -> list[tuple[list[weakref.ref[Module]], Block]]:
        """Lets go of the models."""
        blocks = [([weakref.ref(model) for model in models], block) for models, block in self.items()]
        self.clear()
        for _, block in blocks:
            block._models = ()
        return blocks

    def hold(self, blocks: list[tuple[list[weakref.ref[Module]], Block]]) -> None:
        """Those whose models are still there."""
        for references, block in blocks:
            models = tuple(model for reference in references if (model := reference()) is not None)
            if len(models) == len(references):
                self[models] = block
                block._models = models


class Block:
    """`with accumulate(model)`: one micro-step."""

    __slots__ = ("_accumulation", "_models", "_outer", "count", "iteration", "length")

    def __init__(self, accumulation: Accumulation, models: tuple[Module, ...]) -> None:
        self._accumulation = accumulation
        self._models = models
        self.iteration: Iteration | None = None
        self.count = 0
        self.length = 1
        self._outer = (False, False, 1)

    def __enter__(self) -> None:
        owner = self._accumulation
        stack = owner.iterations.stack if owner.plugin.sync_with_dataloader else None
        iteration = stack[-1] if stack else None
        if iteration is not self.iteration:
            self.iteration, self.count = iteration, 0
        self.count += 1
        owner.sync = self.count % owner.steps == 0 or (iteration is not None and iteration.is_last)
        self._outer = (owner.inside, owner.holding, owner.divisor)
        owner.inside, owner.holding, owner.held_in = True, not owner.sync, iteration
        if (self.count - 1) % owner.steps == 0:
            # Settled when the window begins: all its losses must be divided by the same number.
            self.length = 1 if owner.steps == 1 else self._window(owner, iteration)
        owner.divisor = self.length
        if owner.holding and owner.defer is not None:
            owner.defer(self._models, True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        owner = self._accumulation
        if owner.holding and owner.defer is not None:
            owner.defer(self._models, False)
        # Steps that follow the block wait as those in it do, unless it was part of another block.
        owner.inside, holding, owner.divisor = self._outer
        if owner.inside:
            owner.holding = holding

    def resume(self, count: int, length: int, iteration: Iteration | None) -> None:
        """Goes on with a window that another run began."""
        self.count, self.length, self.iteration = count, length, iteration

    def _window(self, owner: Accumulation, iteration: Iteration | None) -> int:
        """How many micro-steps this window has, as far as that is known: with one block for each batch."""
        if iteration is None or iteration.total is None or not owner.plugin.weigh_last_window:
            return owner.steps
        if self.count != iteration.index:
            return owner.steps
        return min(owner.steps, iteration.total - iteration.index + 1)
