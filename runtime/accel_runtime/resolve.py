"""The one place where names become objects: options and a world in, a session out."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore  # torch exports it under no public name with types

from accel_runtime.agreement import Agreement, CheckedCollectives
from accel_runtime.availability import is_torch_xla_available
from accel_runtime.collectives import Collectives
from accel_runtime.devices import Device
from accel_runtime.errors import ConfigError
from accel_runtime.found_accelerator import found_accelerator
from accel_runtime.handlers import Handler, InitProcessGroupKwargs, pick
from accel_runtime.machine import this_machine
from accel_runtime.options import Options
from accel_runtime.precision import Precision
from accel_runtime.process_group import destroy_at_exit
from accel_runtime.refusals import check_combination
from accel_runtime.strategies import Strategy
from accel_runtime.world import World, place_is_taken, take_place, world_from, world_of_group

log = logging.getLogger("accel_runtime")

# Import paths and not classes: an optional engine is imported only when it is chosen.
DEVICES = {
    "cpu": "accel_runtime.devices.cpu:Cpu",
    "native": "accel_runtime.devices.native:Native",
    "xla": "accel_runtime.devices.xla:Xla",
}
STRATEGIES = {
    "single": "accel_runtime.strategies.single:Single",
    "ddp": "accel_runtime.strategies.ddp:Ddp",
    "fsdp": "accel_runtime.strategies.fsdp:Fsdp",
    "deepspeed": "accel_runtime.strategies.deepspeed:DeepSpeed",
    "xla": "accel_runtime.strategies.xla:XlaDataParallel",
}
PRECISIONS = {
    "no": "accel_runtime.precision.full:Full",
    "bf16": "accel_runtime.precision.bf16:Bf16",
    "fp16": "accel_runtime.precision.fp16:Fp16",
    "fp8": "accel_runtime.precision.fp8:Fp8",
    "fp8-emulated": "accel_runtime.precision.fp8:EmulatedFp8",
}


@dataclass(frozen=True, slots=True)
class Session:
    """Everything that was chosen for one Accelerator."""

    options: Options
    world: World
    hardware: Device
    device: torch.device
    collectives: Collectives
    strategy: Strategy
    precision: Precision
    owns_group: bool  # whether this session joined the processes, and so parts them at the end


def session_from(
    options: Options,
    handlers: tuple[Handler, ...],
    environ: Mapping[str, str] = os.environ,
    plugins: tuple[object, ...] = (),
    asked: torch.device | None = None,
) -> Session:
    """Chooses device, strategy and precision, and joins the other processes; `asked` is the script's own device."""
    hardware = device_for(options, environ)
    world = hardware.world(current_world(environ))
    spread = strategy_name(options, world)
    check_combination(spread, options.mixed_precision, hardware.name)
    device = hardware.of_rank(world.local_rank) if asked is None else _own_device(hardware, world, asked)
    if options.matmul_precision is not None:
        # Torch has one setting for the whole process, so it is set only on request.
        torch.set_float32_matmul_precision(options.matmul_precision)
    strategy = _strategy(hardware.data_parallel if spread == "ddp" else spread, options, (*handlers, *plugins))
    group = pick(handlers, InitProcessGroupKwargs, InitProcessGroupKwargs())
    owns_group = join(world, hardware, options, group, strategy.needs_group)
    return Session(
        options=options,
        world=world,
        hardware=hardware,
        device=device,
        collectives=collectives_for(world, device, options.debug),
        strategy=strategy,
        precision=_precision(options, device, strategy, handlers),
        owns_group=owns_group,
    )


def current_world(environ: Mapping[str, str]) -> World:
    """The world of a process group that the script has joined by itself, else the one the launcher described."""
    world = world_from(environ)
    if world.size > 1 and not dist.is_initialized() and place_is_taken(environ, os.getpid()):
        # A child of a rank, such as a worker of its loader that imports the script. It keeps the rank's device.
        return World(local_rank=world.local_rank, local_size=world.local_size)
    if not dist.is_initialized() or (world.rank, world.size) == (dist.get_rank(), dist.get_world_size()):
        return world
    return world_of_group(dist.get_rank(), dist.get_world_size(), environ)


def device_for(options: Options, environ: Mapping[str, str]) -> Device:
    kind: type[Device] = _load(DEVICES, "device", "cpu" if options.cpu else device_name(environ))
    return kind()


def asked_device(device: torch.device | str | int | None, cpu: bool | None) -> torch.device | None:
    """What `Accelerator(device=...)` names."""
    if device is None:
        return None
    try:
        asked = torch.device(device)
    except RuntimeError:
        raise ConfigError(
            f"device={device!r} names no device of torch; pass one such as 'cpu', 'cuda' or 'cuda:1'"
        ) from None
    if cpu and asked.type != "cpu":
        raise ConfigError(f"cpu=True and device={str(asked)!r} ask for two devices; pass one of them")
    return asked


def _own_device(hardware: Device, world: World, asked: torch.device) -> torch.device:
    """The device that was asked for; of many processes each has its own, so that a number does not count."""
    if asked.type != hardware.name:
        raise ConfigError(
            f"device={str(asked)!r} is not available on this machine, which has {hardware.name}; pass another, or leave it out"
        )
    if world.size == 1 and asked.index is not None:
        return hardware.of_number(asked.index)
    if asked.index and world.is_main:
        log.warning(
            f"device={str(asked)!r}: each of the {world.size} processes has a device of its own; its number is not used"
        )
    return hardware.of_rank(world.local_rank)


def device_name(environ: Mapping[str, str]) -> str:
    """XLA where its runtime was asked for or a TPU is plugged in, else what torch finds: a TPU through torch_tpu too."""
    found = found_accelerator()
    if found is not None and found.type == "tpu":
        return "native"
    has_tpu = "PJRT_DEVICE" in environ or this_machine(environ).kind == "tpu"
    if has_tpu and is_torch_xla_available():
        return "xla"
    return "native" if torch.accelerator.is_available() else "cpu"


def strategy_name(options: Options, world: World) -> str:
    return "single" if options.strategy == "ddp" and world.size == 1 else options.strategy


def join(
    world: World, hardware: Device, options: Options, settings: InitProcessGroupKwargs, even_alone: bool = False
) -> bool:
    """Initialises the process group, unless that was done before, or there are no others and the strategy can do without."""
    if dist.is_initialized():
        take_place(os.environ, os.getpid())
        return False
    if world.size == 1:
        return even_alone and _join_alone(settings.backend or hardware.backend)
    timeout = settings.timeout or (timedelta(seconds=options.timeout) if options.timeout else None)
    dist.init_process_group(
        settings.backend or hardware.backend,
        init_method=settings.init_method or world.meeting_point,
        timeout=timeout,
        rank=world.rank,
        world_size=world.size,
    )
    take_place(os.environ, os.getpid())
    destroy_at_exit()
    return True


def _join_alone(backend: str) -> bool:
    dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    destroy_at_exit()
    return True


def collectives_for(world: World, device: torch.device, debug: bool) -> Collectives:
    if not debug or world.size == 1:
        return Collectives(world, device)
    return CheckedCollectives(world, device, Agreement.of_group(world))


def _strategy(name: str, options: Options, settings: tuple[object, ...]) -> Strategy:
    kind: type[Strategy] = _load(STRATEGIES, "strategy", name)
    return kind.made_for(options, settings)


def _precision(options: Options, device: torch.device, strategy: Strategy, handlers: tuple[Handler, ...]) -> Precision:
    table = {**PRECISIONS, **strategy.precisions}
    kind: type[Precision] = _load(table, "mixed_precision", options.mixed_precision)
    return kind.made_for(device.type, handlers)


def _load(table: Mapping[str, str], setting: str, name: str) -> Any:
    if name not in table:
        raise ConfigError(f"{setting}={name!r} is not available in this version; use {' or '.join(table)}")
    module, _, variant = table[name].partition(":")
    return getattr(import_module(module), variant)
