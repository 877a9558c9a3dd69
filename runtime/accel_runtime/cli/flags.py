"""The settings as flags: one list of keys with their help, from which launch, test and config build theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from accel_runtime.nearest import nearest
from accel_runtime.options import flag_of, key_types
from accel_runtime.peer_config import meaning
from accel_runtime.unsupported import instead_of_flag
from accel_runtime.values import choices_of, plain_type

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Processes and machines": {
        "num_processes": "Processes in total, over all machines, on any device. Default: one for each device.",
        "num_machines": "Machines, or as 1:4 the fewest and the most that may take part.",
        "processes_per_machine": "Processes on each machine; with num_machines 1:4 the total is not fixed.",
        "machine_rank": "Which machine this is; 0 is the one at main_process_ip. Default: found by address.",
        "main_process_ip": "Address of the first machine, the same on every machine.",
        "main_process_port": "Port where the machines meet; 0 finds a free one on a single machine.",
        "devices": "Indices of the devices to use, such as 0,2.",
        "cpu": "Train on the CPU even where there is a GPU.",
        "threads_per_process": "CPU threads of each process. Default: the cores, divided evenly.",
        "max_restarts": "How often to start all processes again after one has failed.",
        "timeout": "Seconds that a collective may take before the run is given up.",
    },
    "Training": {
        "mixed_precision": "Precision of the forward pass.",
        "matmul_precision": "Precision of float32 products: high allows TF32, medium bfloat16.",
        "gradient_accumulation_steps": "Batches for each optimizer step.",
        "split_batches": "The loader's batch size is the total, sharded over the processes: steps and batch as on one.",
        "dynamo_backend": "Compile the model with this backend of torch.compile, such as inductor.",
        "strategy": "How the model is spread over the processes.",
        "gradient_clipping": "Largest gradient norm, for an engine that clips by itself.",
    },
    "Settings of fsdp and deepspeed": {
        "zero_stage": "What DeepSpeed shards: optimizer (1), gradients (2), parameters (3).",
        "deepspeed_config": "A DeepSpeed JSON file; its auto values are filled in.",
        "cpu_offload": "Keep parameters and optimizer state in the memory of the CPU.",
        "wrap_layers": "Class names of the layers to shard one by one, such as Block,Head.",
        "wrap_min_parameters": "Shard every module with at least so many parameters.",
        "reshard_after_forward": "Free the gathered parameters between forward and backward.",
        "activation_checkpointing": "Compute activations again in the backward pass instead of keeping them.",
    },
    "Output": {
        "log_dir": "Keep the output of every rank in this folder; the terminal shows the first rank.",
        "tee": "Show the output of every rank, each line with its rank.",
        "show_ranks": "Whose output to show: the first rank of each machine (the default), or all.",
        "debug": "Check collectives for equal shapes and show all ranks, with all tracebacks in full.",
    },
}

# Names by which people look for a flag.
OTHER_NAMES = {"split_batches": ("--keep-batch",)}

# Flags of Accelerate whose name or meaning differs, as (flag, key, value; None takes an argument).
PEER_FLAGS: tuple[tuple[str, str, Any], ...] = (
    ("--gpu-ids", "devices", None),
    ("--num-cpu-threads-per-process", "threads_per_process", None),
    ("--use-fsdp", "strategy", "fsdp"),
    ("--use-deepspeed", "strategy", "deepspeed"),
    ("--deepspeed-config-file", "deepspeed_config", None),
    ("--fsdp-transformer-layer-cls-to-wrap", "wrap_layers", None),
    ("--fsdp-min-num-params", "wrap_min_parameters", None),
    ("--fsdp-activation-checkpointing", "activation_checkpointing", None),
    ("--fsdp-offload-params", "cpu_offload", None),
    ("--fsdp-reshard-after-forward", "reshard_after_forward", None),
)

# Flags of Accelerate that say what is always so here, or concern its launcher alone; with a value or without.
WITHOUT_MEANING = {
    "--downcast-bf16": 0,
    "--enable-cpu-affinity": 0,
    "--fsdp-auto-wrap-policy": 1,
    "--fsdp-backward-prefetch": 1,
    "--fsdp-cpu-ram-efficient-loading": 1,
    "--fsdp-forward-prefetch": 1,
    "--fsdp-state-dict-type": 1,
    "--fsdp-sync-module-states": 1,
    "--fsdp-use-orig-params": 1,
    "--fsdp-version": 1,
    "--main-training-function": 1,
    "--monitor-interval": 1,
    "--multi-gpu": 0,
    "--quiet": 0,
    "--rdzv-backend": 1,
    "--role": 1,
    "--same-network": 0,
    "--tpu": 0,
    "--zero3-init-flag": 1,
    "--zero3-save-16bit-model": 1,
}

# Flags of Accelerate whose words mean values of ours, as (flag, key of its config file).
PEER_WORDS: tuple[tuple[str, str], ...] = (
    ("--fsdp-sharding-strategy", "fsdp_config.fsdp_sharding_strategy"),
    ("--offload-optimizer-device", "deepspeed_config.offload_optimizer_device"),
    ("--offload-param-device", "deepspeed_config.offload_param_device"),
)

HELP = {key: text for group in GROUPS.values() for key, text in group.items()}


def settings_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command one flag for each key; a flag that was not typed arrives as None."""
    for flag, values in WITHOUT_MEANING.items():
        ignored = click.option(flag, is_flag=not values, hidden=True, expose_value=False, callback=_say_ignored)
        command = ignored(command)
    for flag, key, value in reversed(PEER_FLAGS):
        settings = {"flag_value": value} if value is not None else {}
        command = click.option(flag, f"peer_{key}", hidden=True, default=None, **settings)(command)
    for flag, key in PEER_WORDS:
        command = click.option(flag, _name_of_words(key), hidden=True, default=None)(command)
    for key in reversed(HELP):
        command = _flag(key)(command)
    return command


def _name_of_words(key: str) -> str:
    return f"words_{key.replace('.', '_')}"


def _say_ignored(_: click.Context, param: click.Parameter, value: Any) -> None:
    if value:
        click.echo(f"accel: {param.opts[0]} has no meaning here and is ignored", err=True)


def _flag(key: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    kind = plain_type(key_types()[key])
    if kind is bool:
        flags = (flag_of(key), *OTHER_NAMES.get(key, ()))
        return click.option(*(f"{flag}/--no-{flag[2:]}" for flag in flags), key, default=None, help=HELP[key])
    # Values are checked where all sources are checked, so that a typo reads the same wherever it was made.
    words = "|".join(str(choice) for choice in choices_of(key_types()[key]))
    names = {int: "N", float: "SECONDS" if key == "timeout" else "X", tuple: "NAMES"}
    return click.option(flag_of(key), key, default=None, metavar=words or names.get(kind, "TEXT"), help=HELP[key])


def typed_flags(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed, by key: the project's spelling before Accelerate's."""
    ours = {key: parameters[key] for key in HELP if parameters.get(key) is not None}
    theirs = {key: parameters.get(f"peer_{key}") for _, key, _ in PEER_FLAGS}
    for flag, key in PEER_WORDS:
        if (said := parameters.get(_name_of_words(key))) is not None:
            theirs |= meaning(flag, key, int(said) if said.isdecimal() else said)
    return {**{key: value for key, value in theirs.items() if value is not None}, **ours}


class GroupedCommand(click.Command):
    """Help in the groups above; `--num_processes` is `--num-processes`; what follows the script belongs to it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # `click` would print one list of thirty flags and take `--lr` of `train.py --lr 1` for its own.
        kwargs["context_settings"] = {
            "help_option_names": ["-h", "--help"],
            "allow_interspersed_args": False,
            "token_normalize_func": lambda token: token.replace("_", "-"),
            **kwargs.get("context_settings", {}),
        }
        super().__init__(*args, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, self._without_numbers_of_tee(args))
        except click.NoSuchOption as error:
            if instead := instead_of_flag(error.option_name):
                raise click.UsageError(f"{error.option_name}: {instead}", ctx) from None
            known = [flag for param in self.params if isinstance(param, click.Option) for flag in param.opts]
            close = nearest(error.option_name, known)
            raise click.UsageError(f"no such option {error.option_name}{close}", ctx) from None

    def _without_numbers_of_tee(self, args: list[str]) -> list[str]:
        """`--tee 3`, as torchrun and Accelerate have it, says no more than `--tee`; the number is no script."""
        valued = {flag for one in self.params if isinstance(one, click.Option) and not one.is_flag for flag in one.opts}
        place = 0
        while place < len(args) and args[place].startswith("-"):
            flag = args[place].replace("_", "-")
            if flag == "--tee" and args[place + 1 : place + 2] in (["0"], ["1"], ["2"], ["3"]):
                return [*args[:place], "--no-tee" if args[place + 1] == "0" else "--tee", *args[place + 2 :]]
            place += 2 if flag in valued else 1
        return args

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {
            param.name: param.get_help_record(ctx) for param in self.get_params(ctx) if isinstance(param, click.Option)
        }
        rest = [record for name, record in records.items() if record and name not in HELP]
        with formatter.section("Options"):
            formatter.write_dl(rest)
        for title, keys in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([record for key in keys if (record := records.get(key))])
