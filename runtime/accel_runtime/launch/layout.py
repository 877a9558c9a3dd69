"""How many processes run on which machines, or the reason why that does not come out even."""

from __future__ import annotations

from dataclasses import dataclass

from accel_runtime.errors import ConfigError
from accel_runtime.machine import Machine
from accel_runtime.options import Settings


@dataclass(frozen=True, slots=True)
class Layout:
    """With `min_machines` below `machines` the world may grow and shrink."""

    min_machines: int
    machines: int
    local_processes: int

    @property
    def processes(self) -> int:
        return self.machines * self.local_processes

    @property
    def is_elastic(self) -> bool:
        return self.min_machines < self.machines


def layout_of(settings: Settings, machine: Machine) -> Layout:
    """The processes that the settings ask for, one for each device where they leave it open."""
    least, _, most = settings.num_machines.partition(":")
    min_machines, machines = int(least), int(most or least)
    if min_machines > machines:
        raise ConfigError(f"num_machines is {settings.num_machines}, but the first number is the smaller one")
    devices = () if settings.cpu else chosen_devices(settings, machine)
    local = _local_processes(settings, min_machines, machines) or max(1, len(devices))
    if devices and local > len(devices):
        raise ConfigError(
            f"{local} processes on this machine need as many devices, and there are {len(devices)}; "
            "pass --cpu to train on the CPU"
        )
    return Layout(min_machines, machines, local)


def chosen_devices(settings: Settings, machine: Machine) -> tuple[str, ...]:
    """The devices of this machine that the run may use."""
    if settings.devices is None or settings.devices == "all":
        return machine.devices
    if settings.cpu:
        raise ConfigError(f"devices is {settings.devices}, but --cpu asks for the CPU; leave one of them out")
    if machine.kind == "cpu":
        why = "no device that torch can use is on this machine"
        raise ConfigError(f"devices is {settings.devices}, but {why}; leave it out to train on the CPU")
    chosen = tuple(part.strip() for part in settings.devices.split(","))
    if unknown := [device for device in chosen if device not in machine.devices]:
        here = ", ".join(machine.devices)
        raise ConfigError(f"devices is {settings.devices}, but {unknown[0]} is not among those to be used here: {here}")
    return chosen


def _local_processes(settings: Settings, min_machines: int, machines: int) -> int | None:
    """Processes on each machine, where the settings say."""
    total, local = settings.num_processes, settings.processes_per_machine
    if total is None or total == (local or 0) * machines:
        return local
    if local is not None:
        raise ConfigError(
            f"num_processes is {total}, but {machines} machines with {local} processes each make {machines * local}; "
            "say one of the two"
        )
    if min_machines < machines:
        raise ConfigError(f"num_machines {settings.num_machines} has no fixed total; say processes_per_machine instead")
    if total < machines:
        raise ConfigError(f"{total} processes cannot run on {machines} machines: each needs one")
    if total % machines:
        raise ConfigError(f"{total} processes do not divide over {machines} machines")
    return total // machines
