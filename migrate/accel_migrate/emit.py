"""The code that is written into scripts: every name here exists in the runtime, and a test keeps it so."""

from __future__ import annotations

import ast

from accel_migrate.analysis.placement.agreed_names import BROADCAST
from accel_migrate.analysis.storage.writers import plain_writers
from accel_migrate.flow.nodes import walk
from accel_migrate.flow.scopes import Module
from accel_migrate.rule import Context
from accel_migrate.source import Source

# Attributes and methods of the Accelerator that rewritten scripts may use.
EMITTED = (
    "autocast",
    "backward",
    "clip_grad_norm_",
    "clip_grad_value_",
    "device",
    "end_training",
    "gather_for_metrics",
    "get_state_dict",
    "is_local_main_process",
    "is_main_process",
    "local_num_processes",
    "local_process_index",
    "no_sync",
    "num_processes",
    "prepare",
    "print",
    "process_index",
    "reduce",
    "register_forward_method",
    "save",
    "sum_for_metrics",
    "unscale_gradients",
    "unwrap_model",
    "wait_for_everyone",
    "whole_batches",
)


def accelerator_name(context: Context) -> str:
    """How the place that makes the Accelerator names it."""
    return "self.accelerator" if context.training.reach.by_class is not None else "accelerator"


def accelerator_statement(context: Context) -> str:
    """`accelerator = Accelerator(...)` with what the script's own options ask for."""
    training, source = context.training, context.training.start.module.source
    arguments = []
    arguments += _device(context, source)
    arguments += _precision(context, source)
    handlers = [
        f"{name}({', '.join(f'{key}={requoted(source, value)}' for key, value in told)})"
        for name, told in _handlers(context)
    ]
    if handlers:
        arguments.append(f"kwargs_handlers=[{', '.join(handlers)}]")
    made = f"{accelerator_name(context)} = Accelerator"
    line = f"{made}({', '.join(arguments)})"
    if training.start.statement.col_offset + len(line) <= 120:
        return line
    inner = "".join(f"\n    {argument}," for argument in arguments)
    return f"{made}({inner}\n)"


def _device(context: Context, source: Source) -> list[str]:
    """The script's own choice of its device; Accelerate knows of the CPU alone."""
    start = context.training.start
    if start.device is not None and context.settings.target == "accelerate":
        return [f'cpu=torch.device({start.device}).type == "cpu"']
    if start.device is not None:
        return [f"device={start.device}"]
    return [f"cpu={requoted(source, start.cpu)}"] if start.cpu is not None else []


def _precision(context: Context, source: Source) -> list[str]:
    """The script's own precision, unless the user asked for another. Its regions stay where they were."""
    precision = context.training.precision
    if context.settings.mixed_precision is not None:
        return [f'mixed_precision="{context.settings.mixed_precision}"']
    if precision.argument is None:
        return []
    arguments = [f"mixed_precision={requoted(source, precision.argument)}"]
    if context.settings.target != "accelerate":
        arguments.append("autocast_forward=False")
        if context.training.schedules_skipped_steps:
            arguments.append("schedule_skipped_steps=True")
    return arguments


def _handlers(context: Context) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    """The settings of torch's own parts that the script gave them by hand."""
    told = [
        ("DistributedDataParallelKwargs", context.training.settings),
        ("InitProcessGroupKwargs", context.training.waiting),
    ]
    if context.settings.mixed_precision is None:
        told.append(("GradScalerKwargs", context.training.precision.settings))
    return [(name, settings) for name, settings in told if settings]


def imported_names(context: Context) -> list[str]:
    """What the script must import to write its Accelerator, and what is silent beside it."""
    silent = ["Silent"] if silent_writers(context, context.training.start.module) else []
    training = context.training
    agreed = [BROADCAST] if training.agrees and training.own_names else []
    return ["Accelerator", *[name for name, _ in _handlers(context)], *silent, *agreed]


def silent_writers(context: Context, module: Module) -> list[ast.Call]:
    """The writers of events that one process alone has; Accelerate has nothing that stands in for them on the others."""
    training = context.training
    alone = module is training.start.module or sum(module in each.modules for each in context.script.trainings) == 1
    if context.settings.target == "accelerate" or not training.makes_accelerator or not alone:
        return []
    return [
        call
        for call in plain_writers(context.script.graph, module)
        if training.ready(module, call) is not None and not training.flow.on_some(module, call)
    ]


def requoted(source: Source, text: str) -> str:
    """A text that `ast` wrote with single quotes, in the quotes that the author uses."""
    if source.text.count('"') < source.text.count("'") or '"' in text:
        return text
    strings = [n.value for n in walk(ast.parse(text)) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    for value in strings:
        text = text.replace(f"'{value}'", f'"{value}"')
    return text
