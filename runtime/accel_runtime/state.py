"""The state classes of Accelerate, as views: on this process among the others, and on the Accelerator made last.

Nothing is kept in them that the runtime would ask for; two Accelerators stay independent.
"""

from __future__ import annotations

import os
import warnings
import weakref
from typing import Any, ClassVar

import torch.distributed as dist

from accel_runtime.accumulation import Accumulation, GradientAccumulationPlugin
from accel_runtime.data.iteration import Iterations
from accel_runtime.errors import ConfigError
from accel_runtime.handlers import InitProcessGroupKwargs
from accel_runtime.latest import forget, latest
from accel_runtime.options import Options, options_from
from accel_runtime.peer_environment import peer_layer
from accel_runtime.processes import DistributedType, Processes
from accel_runtime.resolve import collectives_for, current_world, session_from
from accel_runtime.unsupported import absent, instead_of_member
from accel_runtime.world import World

KNOWN = (
    "backend",
    "debug",
    "device",
    "distributed_type",
    "local_process_index",
    "num_processes",
    "process_index",
    "is_main_process",
    "is_local_main_process",
    "is_last_process",
    "use_distributed",
)


class Known(dict[str, Any]):
    """Filled when it is compared, once an Accelerator is made: so libraries ask whether there is one."""

    before: weakref.ref[Any] | None = None  # the Accelerator that was there when it was emptied

    def clear(self) -> None:
        made = latest()
        self.before = None if made is None else weakref.ref(made)
        super().clear()

    def __eq__(self, other: object) -> bool:
        made = latest()
        if not self and made is not None and (self.before is None or self.before() is not made):
            PartialState()
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other


class PartialState(Processes):
    """The processes of this run without anything about training; all of one process share what they know.

    >>> state = PartialState()
    >>> with state.split_between_processes(["a", "b", "c"]) as mine: ...
    """

    _shared_state: ClassVar[dict[str, Any]] = Known()
    _known_attrs = KNOWN

    def __init__(self, cpu: bool = False, **group: Any) -> None:
        self.__dict__ = self._shared_state
        if not (self.initialized and _is_current(self._world)):
            made = None if group else latest()
            if made is not None and _is_current(made._world):
                super().__init__(made._world, made._device, made._collectives)
            else:
                debug = options_from(os.environ, {}, [peer_layer(os.environ)]).debug
                session = session_from(
                    Options(cpu=cpu, debug=debug), (InitProcessGroupKwargs(**group),) if group else ()
                )
                super().__init__(session.world, session.device, session.collectives)
        if cpu and self.device.type != "cpu":
            warnings.warn(
                f"PartialState(cpu=True): this process works on {self.device} already, and goes on there; "
                "call PartialState._reset_state() first",
                stacklevel=2,
            )

    @property
    def initialized(self) -> bool:
        return "_world" in self.__dict__

    @property
    def debug(self) -> bool:
        return bool(self.__dict__.get("_debug", super().debug))

    @debug.setter
    def debug(self, wanted: bool) -> None:
        """From now on the processes name the line of each collective; shapes are compared in any case."""
        if wanted != self.debug:
            self._collectives = collectives_for(self._world, self._device, wanted)
        self._debug = wanted

    @staticmethod
    def _reset_state() -> None:
        """The next PartialState finds out anew where it is."""
        PartialState._shared_state.clear()

    def __getattr__(self, name: str) -> Any:
        raise _missing("PartialState", name, self._known_attrs)


class AcceleratorState:
    """What the Accelerator made last shows of itself; without one, the processes and the precision asked for here."""

    _shared_state: ClassVar[dict[str, Any]] = {}
    _known_attrs = (*KNOWN, "deepspeed_plugin", "dynamo_plugin", "mixed_precision", "use_ipex")

    def __init__(
        self, mixed_precision: str | None = None, cpu: bool = False, _from_accelerator: bool = False, **plugins: Any
    ) -> None:
        self.__dict__ = self._shared_state
        for name, plugin in plugins.items():
            if plugin is not None:
                raise ConfigError(f"AcceleratorState({name}=...): pass it to the Accelerator, which acts on it")
        if latest() is None:
            PartialState(cpu=cpu)
            self.__dict__.setdefault("mixed_precision", mixed_precision or "no")
        elif mixed_precision not in (None, self.mixed_precision) or (cpu and self.device.type != "cpu"):
            raise ConfigError(
                f"an Accelerator runs here in {self.mixed_precision!r} on {self.device}, and AcceleratorState only "
                "shows it; pass mixed_precision or cpu to the Accelerator"
            )

    @property
    def initialized(self) -> bool:
        return is_initialized() or bool(self.__dict__)

    def __repr__(self) -> str:
        made = latest()
        return repr(made) if made is not None else f"{PartialState()!r}\nMixed precision type: {self.mixed_precision}\n"

    @staticmethod
    def _reset_state(reset_partial_state: bool = False) -> None:
        """Forgets which Accelerator was made last; the Accelerator itself goes on."""
        AcceleratorState._shared_state.clear()
        GradientState._reset_state()
        forget()
        if reset_partial_state:
            PartialState._reset_state()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = latest()
        target = PartialState() if made is None else made
        if not hasattr(target, name):
            raise _missing("AcceleratorState", name, self._known_attrs)
        return getattr(target, name)


class GradientState:
    """The accumulation of the Accelerator made last; without one, that of a script that accumulates nothing."""

    _shared_state: ClassVar[dict[str, Any]] = {}

    def __init__(self, gradient_accumulation_plugin: GradientAccumulationPlugin | None = None) -> None:
        self.__dict__ = self._shared_state
        made = latest()
        if made is None:
            plugin = gradient_accumulation_plugin or GradientAccumulationPlugin()
            self.__dict__.setdefault("accumulation", Accumulation(plugin, Iterations(), None))
        elif gradient_accumulation_plugin not in (None, made.gradient_state.plugin):
            raise ConfigError("GradientState(plugin): pass gradient_accumulation_plugin to the Accelerator instead")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._seen(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__dict__":
            object.__setattr__(self, name, value)
        else:
            setattr(self._seen(), name, value)

    def __repr__(self) -> str:
        return repr(self._seen())

    def _seen(self) -> Accumulation:
        made = latest()
        return self.__dict__["accumulation"] if made is None else made.gradient_state  # type: ignore[no-any-return]

    @staticmethod
    def _reset_state() -> None:
        GradientState._shared_state.clear()


def is_initialized() -> bool:
    """Whether an Accelerator has been made that is still in use."""
    return latest() is not None


def _is_current(world: World) -> bool:
    """Whether it is that of this process: not of one that forked it, nor from before the group ended."""
    return world == current_world(os.environ) and (world.size == 1 or dist.is_initialized())


def do_nothing(*args: Any, **kwargs: Any) -> None:
    """What a process calls that a function was not meant for."""


def _missing(kind: str, name: str, known: tuple[str, ...]) -> AttributeError:
    if name in known:
        return AttributeError(
            f"`{kind}` object has no attribute `{name}`. This happens if `{kind}._reset_state()` was called and an "
            "`Accelerator` or `PartialState` was not reinitialized."
        )
    return AttributeError(instead_of_member(kind, name))


__all__ = [
    "AcceleratorState",
    "DistributedType",
    "GradientState",
    "PartialState",
    "do_nothing",
    "is_initialized",
]

__getattr__ = absent(__name__)
