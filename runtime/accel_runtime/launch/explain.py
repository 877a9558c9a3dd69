"""A launch put into words: every value with its origin, the command, the batch and who gets which device."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from accel_runtime.launch.layout import Layout, chosen_devices
from accel_runtime.launch.plan import Plan
from accel_runtime.machine import Machine
from accel_runtime.options import Settings, Settled
from accel_runtime.values import as_text


def values_with_origins(settled: Settled) -> list[str]:
    """One line for each key: value, and the flag, variable or file that said so."""
    said = {key: getattr(settled.settings, key) for key in Settings.__struct_fields__}
    texts = {key: "not set" if value is None else as_text(value) for key, value in said.items()}
    key_width, width = max(map(len, texts)), max(map(len, texts.values()))
    origins = {key: settled.origins.get(key, "default") for key in texts}
    return [f"{key:{key_width}}  {text:{width}}  {origins[key]}" for key, text in texts.items()]


def explanation(plan: Plan, settled: Settled, machine: Machine, notes: Sequence[str]) -> str:
    """The whole of `accel launch --explain`."""
    lines = [*values_with_origins(settled), "", *notes, f"command: {shell_line(plan)}", global_batch(plan)]
    return "\n".join([*lines, *devices_of_ranks(plan, machine)])


def shell_line(plan: Plan) -> str:
    """The command with its variables, as a shell would take it."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in plan.environment.items()]
    return " ".join([*variables, shlex.join(plan.command())])


def global_batch(plan: Plan) -> str:
    """What one optimizer step sees, in batches of the script's loader."""
    steps, processes = plan.settings.gradient_accumulation_steps, _count(plan.layout)
    if plan.settings.split_batches:
        return f"global batch: {steps} batch(es) of the loader, each split over {processes} processes"
    if plan.layout.min_machines < plan.layout.machines:
        return f"global batch: one batch of the loader for each of {processes} processes, times {steps} accumulated"
    total = steps * plan.layout.processes
    return f"global batch: {total} x the loader's batch size ({processes} processes x {steps} accumulated)"


def devices_of_ranks(plan: Plan, machine: Machine) -> list[str]:
    """Which device each rank of this machine trains on."""
    ranks = range(plan.layout.local_processes)
    if plan.settings.cpu or machine.kind == "cpu":
        threads = plan.environment.get("OMP_NUM_THREADS", "all")
        return [f"local rank {rank}: cpu, {threads} threads" for rank in ranks]
    devices = chosen_devices(plan.settings, machine)
    return [f"local rank {rank}: {machine.kind} {devices[rank]}" for rank in ranks]


def _count(layout: Layout) -> str:
    if layout.min_machines < layout.machines:
        return f"{layout.min_machines * layout.local_processes} to {layout.processes}"
    return str(layout.processes)
