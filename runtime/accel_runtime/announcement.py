"""What a run says of itself when it starts, in one line each: how it is spread, and what is likely to be a mistake."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import cache

import torch
from torch.nn import Module, SyncBatchNorm
from torch.nn.modules.batchnorm import _BatchNorm

from accel_runtime.data.loader import PreparedLoader
from accel_runtime.machine import Machine
from accel_runtime.resolve import Session


@cache
def say_once(line: str) -> None:
    """On stderr, and once for each process however many Accelerators it makes."""
    sys.stderr.write(f"accel: {line}\n")


def run_in_a_line(session: Session, loaders: Sequence[PreparedLoader], accumulated: int, cores: int) -> str:
    """As `2 processes on 1 machine, cpu, ddp, bf16, global batch 64`; the batch is that of the first loader."""
    world = session.world
    machines = max(1, world.size // world.local_size)
    precision = session.options.mixed_precision
    spread = f"{world.size} processes on {machines} machine{'s' if machines > 1 else ''}"
    parts = [spread, session.device.type, session.strategy.name, "fp32" if precision == "no" else precision]
    batch = loaders[0].total_batch_size if loaders else None
    if batch is not None:
        parts.append(f"global batch {batch * accumulated}")
    crowd = session.device.type == "cpu" and world.local_size > cores
    shared = f"; {world.local_size} processes share {cores} core{'s' if cores > 1 else ''} here, which is slow"
    return ", ".join(parts) + (shared if crowd else "")


def unused_devices(session: Session, machine: Machine) -> str | None:
    """Of a run that is on the CPU though nobody asked for it and the machine has devices."""
    if session.device.type != "cpu" or session.options.cpu or not machine.devices:
        return None
    kind, built = machine.kind, torch.version.cuda or torch.version.hip
    why = "its driver does not answer" if built or kind not in ("cuda", "rocm") else "this torch is built without them"
    return (
        f"this machine has {len(machine.devices)} {kind} devices and torch finds none ({why}), so the run is on the CPU; "
        "pass --cpu or cpu=True if that is meant"
    )


def own_statistics(models: Iterable[Module]) -> str | None:
    """Of models with batch normalisation that learns its statistics: on many processes each has those of its own batches."""
    layers = [
        layer for model in models for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.training
    ]
    kinds = sorted({type(layer).__name__ for layer in layers if not isinstance(layer, SyncBatchNorm)})
    if not kinds:
        return None
    return (
        f"the model has {' and '.join(kinds)}: each process normalises by its own batch; for the statistics of all "
        "processes, on GPUs, convert it with torch.nn.SyncBatchNorm.convert_sync_batchnorm before prepare()"
    )


def nothing_trains_together(models: Iterable[Module], processes: int) -> str | None:
    """Of a loss that goes backward on many processes before any model that trains was prepared."""
    if any(weight.requires_grad for model in models for weight in model.parameters()):
        return None
    return (
        f"backward() was called and no model that trains was prepared: each of {processes} processes trains a copy of "
        "its own, and their weights drift apart; pass the model and its optimizer to prepare(), unless the script "
        "exchanges the gradients by itself"
    )
