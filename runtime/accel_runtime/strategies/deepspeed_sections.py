"""The sections `optimizer` and `scheduler` of DeepSpeed's file: what they describe, built where the script asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from accel_runtime.errors import ConfigError
from accel_runtime.strategies.deepspeed_config import AUTO, Written
from accel_runtime.strategies.deepspeed_engine import quiet

# Optimizers by the names of the file, whose case does not matter. Those that DeepSpeed brings itself are not here: it
# compiles them, and torch's do the same arithmetic.
OPTIMIZERS = {"adagrad": "Adagrad", "sgd": "SGD"}
ADAM = ("adam", "adamw")


def optimizer_in(written: Written, params: Iterable[Any], auto: Mapping[str, Any]) -> Optimizer:
    """The optimizer that the file describes, for these weights; `auto` has the values that the file leaves open."""
    name, settings = _section(written, "optimizer", auto)
    if name.lower() in ADAM:
        # By DeepSpeed's rule Adam decouples its weight decay too, unless the file says otherwise.
        decoupled = settings.pop("adam_w_mode", True) or name.lower() == "adamw"
        settings.pop("torch_adam", None)
        name = "AdamW" if decoupled else "Adam"
    elif name.lower() in OPTIMIZERS:
        name = OPTIMIZERS[name.lower()]
    else:
        raise ConfigError(
            f"{written.origin}: optimizer.type is {name!r}, which DeepSpeed builds for itself; name one of Adam, AdamW, "
            f"{', '.join(OPTIMIZERS.values())}, or take the section out and build it in the script"
        )
    kind: type[Optimizer] = getattr(torch.optim, name)
    return kind(params, **settings)


def scheduler_in(written: Written, optimizer: Optimizer, auto: Mapping[str, Any]) -> Any:
    """The schedule that the file describes, of DeepSpeed or of torch; it counts steps of the engine."""
    name, settings = _section(written, "scheduler", auto)
    import deepspeed.runtime.lr_schedules

    kind = getattr(deepspeed.runtime.lr_schedules, name, None) or getattr(torch.optim.lr_scheduler, name, None)
    if kind is None:
        raise ConfigError(f"{written.origin}: scheduler.type is {name!r}, which neither DeepSpeed nor torch has")
    with quiet():
        return kind(optimizer, **settings)


def _section(written: Written, title: str, auto: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    section = written.config.get(title)
    if section is None:
        raise ConfigError(
            f"{written.origin} has no section {title!r} to build from; add one, or build the script's own {title}"
        )
    settings = {key: auto.get(key) if value == AUTO else value for key, value in section.get("params", {}).items()}
    if unknown := [key for key, value in settings.items() if value is None]:
        raise ConfigError(
            f"{written.origin}: {title}.params.{unknown[0]} is auto, and nothing here knows its value; write one, or leave "
            "it out"
        )
    return section["type"], settings
