"""Every value that a run can be configured with, and the one order in which sources decide it.

Argument in the script, flag, environment (`ACCEL_` and the key in capitals), project config, user config, detection:
the first that says a key decides it. Flags reach the script's processes through the environment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from accel_runtime.errors import ConfigError
from accel_runtime.nearest import nearest
from accel_runtime.values import as_text, converted
from accel_runtime.world import SEEDED, TAKEN, number_of_run, world_from

Precision = Literal["no", "fp16", "bf16", "fp8", "fp8-emulated"]
MatmulPrecision = Literal["highest", "high", "medium"]
StrategyName = Literal["ddp", "fsdp", "deepspeed"]
Count = Annotated[int, Meta(ge=1)]

PREFIX = "ACCEL_"
# Which keys the launcher was given as flags: the script's own arguments win over them, and that is reported.
FLAGS_VARIABLE = "ACCEL_LAUNCH_FLAGS"
# Where the launcher wants to be told which file the metrics of a run are written to.
METRICS_POINTER = "ACCEL_METRICS_POINTER"
# By what the processes of a run are seeded before the script starts: a number, or none.
SEED = "ACCEL_SEED"
# What the launcher tells its processes, and the name of a config file.
OWN_VARIABLES = frozenset(
    {
        FLAGS_VARIABLE,
        "ACCEL_CONFIG",
        "ACCEL_LAUNCHER_PID",
        "ACCEL_FOLD_TRACEBACKS",
        METRICS_POINTER,
        TAKEN,
        SEED,
        SEEDED,
    }
)

# Keys that not every strategy has a use for.
OF_STRATEGIES: Mapping[str, tuple[StrategyName, ...]] = {
    "zero_stage": ("deepspeed",),
    "deepspeed_config": ("deepspeed",),
    "gradient_clipping": ("deepspeed",),
    "cpu_offload": ("fsdp", "deepspeed"),
    "wrap_layers": ("fsdp",),
    "wrap_min_parameters": ("fsdp",),
    "reshard_after_forward": ("fsdp",),
    "activation_checkpointing": ("fsdp",),
}

log = logging.getLogger("accel_runtime")


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the Accelerator needs to know before it looks at the machine. None: not said, so detected."""

    cpu: bool = False
    mixed_precision: Precision = "no"
    matmul_precision: MatmulPrecision | None = None  # of float32; None leaves torch as the script has it
    gradient_accumulation_steps: Count = 1
    split_batches: bool = False
    strategy: StrategyName = "ddp"
    zero_stage: Literal[0, 1, 2, 3] | None = None
    deepspeed_config: str | None = None
    cpu_offload: bool = False
    wrap_layers: tuple[str, ...] | None = None
    wrap_min_parameters: Count | None = None
    reshard_after_forward: bool | None = None
    activation_checkpointing: bool = False
    gradient_clipping: Annotated[float, Meta(gt=0)] | None = None
    dynamo_backend: str | None = None
    timeout: Annotated[float, Meta(gt=0)] | None = None  # seconds a collective may take
    debug: bool = False


class Settings(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All keys of a config file: what the Accelerator needs, and how its processes are started."""

    num_processes: Count | None = None
    num_machines: Annotated[str, Meta(pattern=r"^[1-9]\d*(:[1-9]\d*)?$")] = "1"
    processes_per_machine: Count | None = None
    machine_rank: Annotated[int, Meta(ge=0)] | None = None
    main_process_ip: str | None = None
    main_process_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    devices: Annotated[str, Meta(pattern=r"^\S+$")] | None = None
    threads_per_process: Count | None = None
    max_restarts: Annotated[int, Meta(ge=0)] = 0
    log_dir: str | None = None
    tee: bool = False
    show_ranks: Literal["main", "all"] = "main"


@dataclass(frozen=True, slots=True)
class Layer:
    """What one source says. `place` names a key the way the user wrote it there."""

    origin: str
    values: Mapping[str, Any]
    place: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Settled:
    """The values of a run; `origins` lacks the keys that nobody mentioned."""

    settings: Settings
    origins: Mapping[str, str]


def options_from(environ: Mapping[str, str], arguments: Mapping[str, Any], files: Sequence[Layer] = ()) -> Options:
    """Arguments of the script over the environment over config files; None in `arguments` means not given."""
    script = script_layer(arguments)
    settings = settle([script, environment_layer(environ), *files]).settings
    if world_from(environ).is_main:
        for line in overridden_flags(environ, settings, script):
            log.warning(line)
    return Options(**{key: getattr(settings, key) for key in Options.__struct_fields__})


def settle(layers: Iterable[Layer]) -> Settled:
    """Let the first layer that says a key decide it; a bad value is refused even where a higher layer wins."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        for key, value in layer.values.items():
            checked = _checked(layer, key, value)
            if key not in values:
                values[key], origins[key] = checked, layer.origin
    return Settled(Settings(**values), origins)


def script_layer(arguments: Mapping[str, Any]) -> Layer:
    given = {key: value for key, value in arguments.items() if value is not None}
    return Layer("script", given, lambda key: f"Accelerator({key}=...)")


def flag_layer(flags: Mapping[str, Any]) -> Layer:
    given = {key: value for key, value in flags.items() if value is not None}
    return Layer("flag", given, flag_of)


def environment_layer(environ: Mapping[str, str]) -> Layer:
    variables = {key: PREFIX + key.upper() for key in Settings.__struct_fields__}
    said = {key: environ[name] for key, name in variables.items() if environ.get(name)}
    return Layer("environment", said, lambda key: f"{PREFIX}{key.upper()} in the environment")


def unread_variables(environ: Mapping[str, str]) -> list[str]:
    """One line for each variable that looks like ours and is not one: a typo would else go unnoticed."""
    known = {PREFIX + key.upper() for key in Settings.__struct_fields__} | OWN_VARIABLES
    unread = sorted(name for name in environ if name.startswith(PREFIX) and name not in known)
    return [f"{name} in the environment is not read by anything{nearest(name, known)}" for name in unread]


def seed_from(environ: Mapping[str, str]) -> int | None:
    """The number that seeds all processes of this run; None where ACCEL_SEED=none asks for nothing of the kind."""
    said = environ.get(SEED) or str(number_of_run(environ))
    if said != "none" and not said.isdecimal():
        raise ConfigError(f"{SEED} in the environment is {said!r}, expected a whole number, or none")
    return None if said == "none" else int(said)


def file_layer(path: str, values: Mapping[str, Any]) -> Layer:
    return Layer(path, values, lambda key: f"{path}: {key}")


def detection_layer(values: Mapping[str, Any]) -> Layer:
    return Layer("detected", values, lambda key: f"{key}, as detected,")


def flag_of(key: str) -> str:
    return "--" + key.replace("_", "-")


def as_environment(settled: Settled) -> dict[str, str]:
    """The variables through which a launcher tells its processes what was settled."""
    said = {key: getattr(settled.settings, key) for key in Options.__struct_fields__ if key in settled.origins}
    variables = {PREFIX + key.upper(): as_text(value) for key, value in said.items() if value is not None}
    flags = [key for key in said if settled.origins[key] == "flag"]
    return {**variables, FLAGS_VARIABLE: ",".join(flags)} if flags else variables


def overridden_flags(environ: Mapping[str, str], settings: Settings, script: Layer) -> list[str]:
    """One line for each launch flag that an argument of the script replaces by another value."""
    flags = [key for key in environ.get(FLAGS_VARIABLE, "").split(",") if key in script.values]
    lines = []
    for key in flags:
        said, used = environ.get(PREFIX + key.upper(), as_text(getattr(Options(), key))), getattr(settings, key)
        if said != as_text(used):
            lines.append(f"{flag_of(key)} {said} is not used: the script passes {key}={used!r} to Accelerator")
    return lines


@cache
def key_types() -> Mapping[str, Any]:
    """The keys of a config file, each with the type of its value."""
    return {field.name: field.type for field in msgspec.structs.fields(Settings)}


def _checked(layer: Layer, key: str, value: Any) -> Any:
    kind = key_types().get(key)
    if kind is None:
        raise ConfigError(f"{layer.origin}: unknown key {key!r}{nearest(key, key_types())}")
    return converted(value, kind, layer.place(key))
