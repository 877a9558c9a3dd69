"""A torch that sees GPUs: what `torch.cuda` and `torch.accelerator` answer, and what wraps models on them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

from tests.gpu_stand_in.marks import CPU, tensors_in
from tests.gpu_stand_in.modes import Machine, OneDevice
from tests.gpu_stand_in.tensors import replaced


@contextlib.contextmanager
def gpus(count: int = 2) -> Iterator[Machine]:
    """Inside, this machine has GPUs."""
    machine = Machine(count)
    with contextlib.ExitStack() as stack:
        for place, name, value in (*replaced(machine), *_answers(machine)):
            stack.enter_context(mock.patch.object(place, name, value, create=True))
        files = (5, *_kept_in_files(machine))
        torch.serialization.register_package(*files)
        stack.callback(torch.serialization._package_registry.remove, files)
        stack.enter_context(OneDevice(machine))
        yield machine


def _answers(machine: Machine) -> Iterator[tuple[Any, str, Any]]:
    cuda, accelerator = torch.cuda, torch.accelerator
    stream = _Anything

    def set_current(device: Any) -> None:
        chosen = machine.device(device)
        machine.current = chosen.index if chosen is not None and chosen.type == "cuda" else machine.current

    def nothing(*args: Any, **kwargs: Any) -> None:
        pass

    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: machine.count,
        "current_device": lambda: machine.current,
        "set_device": set_current,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *a, **k: True,
        "get_device_name": lambda *a: "stand-in",
        "get_device_capability": lambda *a: (9, 0),
        "get_device_properties": lambda *a: SimpleNamespace(
            name="stand-in", total_memory=1 << 34, multi_processor_count=1, major=9, minor=0
        ),
        "get_rng_state": lambda device=None: machine.states.get(machine.current, torch.get_rng_state()),
        "set_rng_state": lambda state, device=None: machine.states.__setitem__(machine.current, state),
        "get_rng_state_all": lambda: [machine.states.get(n, torch.get_rng_state()) for n in range(machine.count)],
        "set_rng_state_all": lambda states: machine.states.update(enumerate(states)),
        "manual_seed": lambda seed: machine.seed(int(seed), machine.current),
        "manual_seed_all": lambda seed: machine.seed(int(seed)),
        "memory_allocated": lambda *a: 0,
        "memory_reserved": lambda *a: 0,
        "max_memory_allocated": lambda *a: 0,
        "max_memory_reserved": lambda *a: 0,
        "mem_get_info": lambda *a: (1 << 33, 1 << 34),
        "current_stream": stream,
        "Stream": stream,
        "Event": stream,
        "stream": stream,
        "device": lambda device: contextlib.nullcontext(),
        "get_arch_list": list,
    }
    silent = "synchronize empty_cache init _lazy_init reset_peak_memory_stats reset_max_memory_allocated ipc_collect"
    answers |= dict.fromkeys(silent.split(), nothing)
    for name, answer in answers.items():
        yield cuda, name, answer
    for kind in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Bool", "Byte"):
        yield cuda, f"{kind}Tensor", _maker(getattr(torch, f"{kind}Tensor"))
    yield accelerator, "is_available", lambda: True
    yield accelerator, "device_count", lambda: machine.count
    yield accelerator, "current_accelerator", lambda *a, **k: torch.device("cuda")
    yield accelerator, "current_device_index", lambda: machine.current
    yield accelerator, "set_device_index", lambda device: set_current(device)
    yield accelerator, "synchronize", nothing
    yield accelerator, "current_stream", stream
    yield torch, "Generator", _generators(machine)
    yield torch, "set_default_device", lambda device: setattr(machine, "default", machine.device(device) or CPU)
    yield torch, "get_default_device", lambda: machine.default
    for place in (nn, nn.parallel, nn.parallel.data_parallel):
        yield place, "DataParallel", type("DataParallel", (_DataParallel,), {"machine": machine})
    for place in (nn.parallel, nn.parallel.distributed):
        yield place, "DistributedDataParallel", _without_devices(nn.parallel.DistributedDataParallel)
    yield dist, "init_process_group", _over_gloo(dist.init_process_group)


class _Anything:
    """A stream or an event: nothing waits here, and nothing takes time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> _Anything:
        return self

    def __exit__(self, *trouble: Any) -> None:
        pass

    def elapsed_time(self, other: Any) -> float:
        return 0.0

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def _maker(plain: Any) -> Any:
    """`torch.cuda.FloatTensor(...)`, and what `x.type(torch.cuda.FloatTensor)` is given."""

    def made(*args: Any) -> Any:
        return plain(*args).cuda()

    made.__module__, made.__name__ = "torch.cuda", plain.__name__
    return made


def _generators(machine: Machine) -> Any:
    class Generator(torch.Generator):
        """One of a GPU, too."""

        where = CPU

        def __new__(cls, device: Any = "cpu") -> Any:
            made = super().__new__(cls, CPU)
            made.where = machine.device(device) or CPU
            machine.has_generators |= made.where != CPU
            return made

        def __init__(self, device: Any = "cpu") -> None:
            pass

        @property
        def device(self) -> torch.device:
            return self.where

    return Generator


class _DataParallel(nn.Module):
    """On one GPU, its first: it moves its inputs there, and wants its weights there."""

    machine: Machine

    def __init__(self, module: nn.Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        self.module = module
        self.device_ids = [_number(each) for each in device_ids or range(self.machine.count)]

    def forward(self, *inputs: Any, **settings: Any) -> Any:
        first = torch.device("cuda", self.device_ids[0])
        for tensor in (*self.module.parameters(), *self.module.buffers()):
            if tensor.device != first:
                raise RuntimeError(
                    f"module must have its parameters and buffers on device {first} (device_ids[0]) but found one of them "
                    f"on device: {tensor.device}"
                )
        return self.module(*_moved(inputs, first), **_moved(settings, first))


def _number(device: Any) -> int:
    return device if isinstance(device, int) else torch.device(device).index or 0


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _moved(item, device) for key, item in value.items()}
    if isinstance(value, list | tuple) and any(True for _ in tensors_in(value)):
        made = [_moved(item, device) for item in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    return value


def _without_devices(plain: Any) -> Any:
    class DistributedDataParallel(plain):
        """Over gloo, whose tensors are the CPU's underneath."""

        def __init__(
            self, module: nn.Module, device_ids: Any = None, output_device: Any = None, **settings: Any
        ) -> None:
            super().__init__(module, **settings)

    return DistributedDataParallel


def _over_gloo(plain: Any) -> Any:
    def init_process_group(backend: Any = None, *args: Any, **settings: Any) -> None:
        settings.pop("device_id", None)
        plain("gloo", *args, **settings)

    return init_process_group


def _kept_in_files(machine: Machine) -> tuple[Any, Any]:
    """How a storage says in a file where it was, and comes back there."""

    def location(storage: Any) -> str | None:
        where = machine.marks.of_storage(getattr(storage, "_untyped_storage", storage))
        return str(where) if where.type == "cuda" else None

    def restored(storage: Any, place: str) -> Any:
        if not place.startswith("cuda"):
            return None
        where = machine.device(place)
        assert where is not None
        machine.marks.set_storage(getattr(storage, "_untyped_storage", storage), where)
        return storage

    return location, restored
