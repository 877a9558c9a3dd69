"""What a launch will do, decided before anything starts: who runs where, with which command and environment."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from accel_runtime.config_file import VARIABLE
from accel_runtime.errors import ConfigError
from accel_runtime.launch.allocation import rank_already
from accel_runtime.launch.layout import Layout, chosen_devices, layout_of
from accel_runtime.launch.network import require_free
from accel_runtime.launch.rendezvous import Rendezvous, rendezvous_of
from accel_runtime.machine import MAKERS, Machine
from accel_runtime.options import OF_STRATEGIES, Settings, Settled, as_environment, flag_of
from accel_runtime.terminal import SHOW_RANKS
from accel_runtime.world import World

# As a file and not with -m, for which Python would look into the working folder before its own library.
WORKER = Path(__file__).with_name("worker.py")


@dataclass(frozen=True, slots=True)
class Target:
    """The user's program: a script or, with `module`, what `python -m` takes."""

    name: str
    arguments: tuple[str, ...] = ()
    module: bool = False

    def as_command(self) -> list[str]:
        return [*(["-m"] if self.module else []), self.name, *self.arguments]


@dataclass(frozen=True, slots=True)
class Plan:
    """`environment` is added to the launcher's own; `agent` are the arguments of torch's, none for one process."""

    target: Target
    settings: Settings
    layout: Layout
    environment: Mapping[str, str]
    agent: tuple[str, ...] = ()
    rendezvous: Rendezvous | None = None

    @property
    def replaces_launcher(self) -> bool:
        return not self.agent

    def command(self) -> list[str]:
        """The command to run, as one could type it."""
        if self.replaces_launcher:
            return [sys.executable, *self.target.as_command()]
        return [sys.executable, "-m", "torch.distributed.run", *self.agent, *self.program()]

    def program(self) -> list[str]:
        """What each rank runs; the dashes keep torch from reading the script's own options as its own."""
        return ["--", str(WORKER), *self.target.as_command()]


def require_script(target: Target) -> None:
    if not target.module and not Path(target.name).is_file():
        raise ConfigError(f"{target.name}: there is no such script; a module is started with -m")


def plan_launch(target: Target, settled: Settled, machine: Machine, environ: Mapping[str, str]) -> Plan:
    """Decide everything, or refuse with the reason."""
    _check_strategy(settled)
    settings = settled.settings
    _require_engines(settings)
    world = rank_already(environ)
    layout = layout_of(settings, machine) if world is None else _layout_of_rank(settings, world)
    environment = as_environment(settled) | _devices(settings, machine) | _threads(settings, layout, machine, environ)
    if VARIABLE in environ:
        environment[VARIABLE] = environ[VARIABLE]
    if world is not None or layout.processes == 1:
        return Plan(target, settings, layout, environment)
    if "PYTHONHASHSEED" not in environ:
        # Else each process would iterate its sets of words in another order, and a vocabulary made of one would differ.
        environment["PYTHONHASHSEED"] = "0"
    # Torch itself sorts the output for --log-dir and --tee; --debug wants every traceback.
    sorted_by_torch = settings.log_dir or settings.tee
    environment[SHOW_RANKS] = "all" if sorted_by_torch or settings.debug else settings.show_ranks
    if settings.max_restarts or layout.is_elastic:
        # A restarted rank would read its peers' addresses of the attempt before out of the agent's store, and connect
        # to processes that are gone; with this each attempt has a store of its own.
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    if layout.machines == 1:
        return Plan(target, settings, layout, environment, _agent(settings, layout, _alone(settings)))
    rendezvous = rendezvous_of(settings)
    arguments = _agent(settings, layout, rendezvous.agent_arguments())
    return Plan(target, settings, layout, environment | rendezvous.environment(environ), arguments, rendezvous)


def _check_strategy(settled: Settled) -> None:
    """A flag that would do nothing is a mistake; keys of files may stand there for other runs."""
    settings = settled.settings
    for key, strategies in OF_STRATEGIES.items():
        if settled.origins.get(key) == "flag" and settings.strategy not in strategies:
            raise ConfigError(
                f"{flag_of(key)} is for strategy {' or '.join(strategies)}, and this run has {settings.strategy}; add "
                f"--strategy {strategies[0]}, or leave it out"
            )
    path = settings.deepspeed_config
    if path is not None and settings.strategy == "deepspeed" and not Path(path).is_file():
        raise ConfigError(f"deepspeed_config is {path}, and there is no such file")


def _require_engines(settings: Settings) -> None:
    """A package that every rank would miss is missed once, before any starts."""
    if settings.strategy == "deepspeed" and find_spec("deepspeed") is None:
        raise ConfigError(
            "strategy deepspeed needs the package deepspeed; pip install deepspeed, or use --strategy fsdp"
        )
    # A script may bring Transformer Engine by a handler of its own, which is not known here.
    if settings.mixed_precision.startswith("fp8") and not any(map(find_spec, ("torchao", "transformer_engine"))):
        raise ConfigError(
            f"mixed_precision {settings.mixed_precision} needs the package torchao; pip install torchao, or use bf16"
        )


def _layout_of_rank(settings: Settings, world: World) -> Layout:
    if settings.num_processes not in (None, world.size):
        raise ConfigError(
            f"num_processes is {settings.num_processes}, but {world.launcher} has already started {world.size}, "
            "and this launcher is one of them"
        )
    machines = world.size // world.local_size
    return Layout(machines, machines, world.local_size)


def _devices(settings: Settings, machine: Machine) -> dict[str, str]:
    """Which devices the processes see; with --cpu none of CUDA, for what a script moves there if torch has it."""
    if settings.devices is not None and settings.devices != "all":
        chosen = chosen_devices(settings, machine)
        return {MAKERS[machine.kind].visible: ",".join(chosen)}
    hidden = settings.cpu and machine.kind in ("cuda", "rocm")  # torch.cuda is both
    return {MAKERS[machine.kind].visible: "-1"} if hidden else {}


def _threads(settings: Settings, layout: Layout, machine: Machine, environ: Mapping[str, str]) -> dict[str, str]:
    """Threads for each process, so that together they use the cores once."""
    if settings.threads_per_process is not None:
        return {"OMP_NUM_THREADS": str(settings.threads_per_process)}
    if layout.local_processes == 1 or "OMP_NUM_THREADS" in environ:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, machine.cores // layout.local_processes))}


def _agent(settings: Settings, layout: Layout, rendezvous: list[str]) -> tuple[str, ...]:
    """The arguments of torch.distributed.run up to the program."""
    nodes = f"{layout.min_machines}:{layout.machines}" if layout.is_elastic else str(layout.machines)
    size = [f"--nnodes={nodes}", f"--nproc-per-node={layout.local_processes}"]
    restarts = f"--max-restarts={settings.max_restarts}"
    return (*size, "--rdzv-backend=c10d", *rendezvous, restarts, *_output(settings))


def _output(settings: Settings) -> list[str]:
    folder = [f"--log-dir={settings.log_dir}"] if settings.log_dir else []
    if settings.tee:
        return [*folder, "--tee=3"]
    return [*folder, "--tee=3", "--local-ranks-filter=0"] if folder else []


def _alone(settings: Settings) -> list[str]:
    port = settings.main_process_port or 0
    if port:
        require_free(port)
    return [f"--rdzv-endpoint=localhost:{port}", "--local-addr=127.0.0.1"]
