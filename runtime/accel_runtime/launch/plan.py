"""What a launch will do, decided before anything starts: who runs where, with which command and environment."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from accel_runtime.errors import ConfigError
from accel_runtime.launch.surroundings import rank_already
from accel_runtime.machine import VISIBLE, Machine
from accel_runtime.options import Settings, Settled, as_environment
from accel_runtime.world import World

DEFAULT_PORT = 29500
WORKER = "accel_runtime.launch.worker"


@dataclass(frozen=True, slots=True)
class Target:
    """The user's program: a script or, with `module`, what `python -m` takes."""

    name: str
    arguments: tuple[str, ...] = ()
    module: bool = False

    def as_command(self) -> list[str]:
        return [*(["-m"] if self.module else []), self.name, *self.arguments]


@dataclass(frozen=True, slots=True)
class Layout:
    """How many processes run where; with `min_machines` below `machines` the world may grow and shrink."""

    min_machines: int
    machines: int
    local_processes: int

    @property
    def processes(self) -> int:
        return self.machines * self.local_processes


@dataclass(frozen=True, slots=True)
class Plan:
    """`environment` is what the launcher adds to its own for the processes; `agent` is empty for one process."""

    target: Target
    settings: Settings
    layout: Layout
    environment: Mapping[str, str]
    agent: tuple[str, ...]

    @property
    def replaces_launcher(self) -> bool:
        return not self.agent

    def command(self) -> list[str]:
        """The command to run, as one could type it."""
        if self.replaces_launcher:
            return [sys.executable, *self.target.as_command()]
        return [sys.executable, "-m", "torch.distributed.run", *self.agent, "-m", WORKER, *self.target.as_command()]


def require_script(target: Target) -> None:
    if not target.module and not Path(target.name).is_file():
        raise ConfigError(f"{target.name}: there is no such script; a module is started with -m")


def plan_launch(target: Target, settled: Settled, machine: Machine, environ: Mapping[str, str]) -> Plan:
    """Decide everything, or refuse with the reason."""
    settings = settled.settings
    world = rank_already(environ)
    layout = layout_of(settings, machine) if world is None else _layout_of_rank(settings, world)
    environment = as_environment(settled) | _devices(settings, machine) | _threads(settings, layout, machine, environ)
    if world is not None or layout.processes == 1:
        return Plan(target, settings, layout, environment, ())
    if settings.max_restarts or layout.min_machines < layout.machines:
        # A restarted rank would read its peers' addresses of the attempt before out of the agent's store, and connect
        # to processes that are gone; with this each attempt has a store of its own.
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    return Plan(target, settings, layout, environment, tuple(_agent_arguments(settings, layout)))


def _layout_of_rank(settings: Settings, world: World) -> Layout:
    if settings.num_processes not in (None, world.size):
        raise ConfigError(
            f"num_processes is {settings.num_processes}, but {world.launcher} has already started {world.size}, "
            "and this launcher is one of them"
        )
    return Layout(world.size // world.local_size, world.size // world.local_size, world.local_size)


def layout_of(settings: Settings, machine: Machine) -> Layout:
    """The number of processes on each machine, or the reason why it does not come out even."""
    least, _, most = settings.num_machines.partition(":")
    min_machines, machines = int(least), int(most or least)
    if min_machines > machines:
        raise ConfigError(f"num_machines is {settings.num_machines}, but the first number is the smaller one")
    if settings.processes_per_machine is not None:
        return _layout_per_machine(settings, settings.processes_per_machine, min_machines, machines, machine)
    if settings.num_processes is None:
        devices = () if settings.cpu else chosen_devices(settings, machine)
        return Layout(min_machines, machines, max(1, len(devices)))
    if min_machines < machines:
        raise ConfigError(f"num_machines {settings.num_machines} has no fixed total; say processes_per_machine instead")
    if settings.num_processes < machines:
        raise ConfigError(f"{settings.num_processes} processes cannot run on {machines} machines: each needs one")
    if settings.num_processes % machines:
        raise ConfigError(f"{settings.num_processes} processes do not divide over {machines} machines")
    return _within_devices(Layout(machines, machines, settings.num_processes // machines), settings, machine)


def chosen_devices(settings: Settings, machine: Machine) -> tuple[str, ...]:
    """The devices of this machine that the run may use."""
    if settings.devices in (None, "all"):
        return machine.devices
    return tuple(part.strip() for part in str(settings.devices).split(","))


def _within_devices(layout: Layout, settings: Settings, machine: Machine) -> Layout:
    devices = chosen_devices(settings, machine)
    if machine.kind != "cpu" and not settings.cpu and layout.local_processes > len(devices):
        raise ConfigError(
            f"{layout.local_processes} processes on this machine need as many devices, and there are {len(devices)}; "
            "pass --cpu to train on the CPU"
        )
    return layout


def _layout_per_machine(settings: Settings, local: int, min_machines: int, machines: int, machine: Machine) -> Layout:
    if settings.num_processes not in (None, local * machines):
        raise ConfigError(
            f"num_processes is {settings.num_processes}, but {machines} machines with {local} processes each make "
            f"{machines * local}; say one of the two"
        )
    return _within_devices(Layout(min_machines, machines, local), settings, machine)


def _devices(settings: Settings, machine: Machine) -> dict[str, str]:
    if settings.devices in (None, "all"):
        return {}
    if settings.cpu or machine.kind == "cpu":
        raise ConfigError(f"devices is {settings.devices}, but this run is on the CPU")
    return {VISIBLE[machine.kind]: str(settings.devices)}


def _threads(settings: Settings, layout: Layout, machine: Machine, environ: Mapping[str, str]) -> dict[str, str]:
    """Threads for each process, so that together they use the cores once."""
    if settings.threads_per_process is not None:
        return {"OMP_NUM_THREADS": str(settings.threads_per_process)}
    if layout.local_processes == 1 or "OMP_NUM_THREADS" in environ:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, machine.cores // layout.local_processes))}


def _agent_arguments(settings: Settings, layout: Layout) -> list[str]:
    """The arguments of torch.distributed.run."""
    nodes = (
        f"{layout.min_machines}:{layout.machines}" if layout.min_machines < layout.machines else f"{layout.machines}"
    )
    arguments = [f"--nnodes={nodes}", f"--nproc-per-node={layout.local_processes}", "--rdzv-backend=c10d"]
    arguments += _alone(settings) if layout.machines == 1 else _among_machines(settings)
    arguments += [f"--max-restarts={settings.max_restarts}"]
    if settings.log_dir:
        arguments += [f"--log-dir={settings.log_dir}", "--tee=3"]
    if settings.tee:
        arguments += ["--tee=3"]
    elif settings.log_dir:
        arguments += ["--local-ranks-filter=0"]
    return arguments


def _alone(settings: Settings) -> list[str]:
    port = settings.main_process_port or 0
    if port:
        _require_free(port)
    return [f"--rdzv-endpoint=localhost:{port}", "--local-addr=127.0.0.1"]


def _among_machines(settings: Settings) -> list[str]:
    if not settings.main_process_ip:
        raise ConfigError("several machines need main_process_ip: the address of the first machine, on every machine")
    port = settings.main_process_port or DEFAULT_PORT
    arguments = [f"--rdzv-endpoint={settings.main_process_ip}:{port}", f"--rdzv-id=accel-{port}"]
    if settings.machine_rank is not None:
        arguments += [f"--rdzv-conf=is_host={int(settings.machine_rank == 0)}"]
    if settings.machine_rank == 0:
        _require_free(port)
    return [*arguments, f"--local-addr={address_towards(settings.main_process_ip, port)}"]


def address_towards(host: str, port: int) -> str:
    """This machine's own address on the network that leads to `host`; nothing is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, port))
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigError(f"main_process_ip is {host}, and this machine has no way there: {error}") from error


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        # As the store binds it: a port that is only in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise ConfigError(
                f"port {port} is in use here ({error.strerror}); main_process_port 0 finds a free one"
            ) from error
