"""The configuration of DeepSpeed's engine: what a file says, `auto` filled in, and never two values for one thing."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accel_runtime.errors import ConfigError

AUTO = "auto"
DEFAULT_STAGE = 2
Config = dict[str, Any]
# Sections that describe what a script builds, and what builds it from there.
BUILT = {"optimizer": "DummyOptim", "scheduler": "DummyScheduler"}


@dataclass(frozen=True, slots=True)
class Written:
    """A configuration as its author wrote it; `origin` names it in errors."""

    origin: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """What this run knows by itself; None where nobody has said it."""

    processes: int
    accumulation: int
    precision: str
    micro_batch: int | None = None
    stage: int | None = None
    clipping: float | None = None
    offload: Mapping[str, Config] | None = None  # the sections of zero_optimization that say where things rest
    cpu_offload: bool = False  # all that the stage shards
    built: frozenset[str] = frozenset()  # the sections that the script had built for it


def written_in(source: str | Path | Mapping[str, Any] | None) -> Written:
    """The configuration in a JSON file or a dict."""
    if source is None:
        return Written("the DeepSpeed configuration", {})
    if isinstance(source, Mapping):
        return Written("hf_ds_config", source)
    try:
        config = json.loads(Path(source).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{source}: is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{source}: holds a {type(config).__name__}, expected an object such as " + '{"bf16": {...}}')
    return Written(str(source), config)


def engine_config(written: Written, run: Run) -> Config:
    """The configuration to start the engine with; a contradiction is an error that shows both values."""
    _refuse_built_twice(written, run.built)
    config = copy.deepcopy({key: value for key, value in written.config.items() if key not in BUILT})
    zero = config.setdefault("zero_optimization", {})
    _settle(written, config, "gradient_accumulation_steps", run.accumulation, "the Accelerator accumulates")
    _settle_batch(written, config, run)
    _settle(written, zero, "stage", run.stage, "this run asks for", within="zero_optimization.")
    zero.setdefault("stage", DEFAULT_STAGE)
    if zero["stage"] not in (1, 2, 3):
        raise ConfigError(
            f"zero_stage={zero['stage']!r} shards nothing that ddp does not; use strategy ddp, or 1, 2 or 3"
        )
    _settle(written, config, "gradient_clipping", run.clipping, "this run asks for")
    # Where nobody asks for it the engine would clip to 1.
    config.setdefault("gradient_clipping", 0.0)
    _settle_offload(zero, run)
    for name in ("fp16", "bf16"):
        _settle_precision(written, config, name, run.precision)
    _refuse_autocast(written, config)
    # The script's own optimizer is used wherever its state rests; the engine would insist on one that it compiles.
    config.setdefault("zero_force_ds_cpu_optimizer", False)
    config.setdefault("zero_allow_untested_optimizer", True)
    config.setdefault("steps_per_print", None)
    # Sizes of buffers: the engine has defaults of its own.
    config["zero_optimization"] = {key: value for key, value in zero.items() if value != AUTO}
    if left := next(_unfilled(config), None):
        raise ConfigError(
            f"{written.origin}: {left} is auto, and nothing here knows its value; write one, or leave it out"
        )
    return config


def _refuse_built_twice(written: Written, built: frozenset[str]) -> None:
    for section, stand_in in BUILT.items():
        if section in written.config and section not in built:
            raise ConfigError(
                f"{written.origin}: the section {section!r} would build what the script builds itself; take it out, "
                f"and the script's own {section} is used, or build it with accel_runtime.utils.{stand_in}"
            )


def _settle_batch(written: Written, config: Config, run: Run) -> None:
    micro, total = "train_micro_batch_size_per_gpu", "train_batch_size"
    _settle(written, config, micro, run.micro_batch, "the first prepared loader gives each process")
    # Only the engine's own figures of speed are about it, where there is no loader to know it from.
    config.setdefault(micro, 1)
    share = run.accumulation * run.processes
    said = config.get(total, AUTO)
    if said != AUTO and run.micro_batch is None and micro not in written.config and said % share == 0:
        config[micro] = said // share
    how = f"{config[micro]} samples on {run.processes} processes with {run.accumulation} accumulated make"
    _settle(written, config, total, config[micro] * share, how)


def _settle(written: Written, section: Config, key: str, ours: Any, who: str, within: str = "") -> None:
    """One value for the key: what is written, or ours; a key that nobody has a value for is left out."""
    said = section.pop(key, AUTO)
    if said != AUTO and ours is not None and said != ours:
        raise ConfigError(
            f'{written.origin}: {within}{key} is {said!r} and {who} {ours!r}; write "auto", or make them equal'
        )
    value = ours if said == AUTO else said
    if value is not None:
        section[key] = value


def _settle_offload(zero: Config, run: Run) -> None:
    named = ("offload_optimizer", "offload_param") if zero["stage"] == 3 else ("offload_optimizer",)
    everything = {key: {"device": "cpu"} for key in named if run.cpu_offload}
    for key, section in {**everything, **(run.offload or {})}.items():
        zero[key] = {**zero.get(key, {}), **section}
    place = zero.get("offload_param", {}).get("device", "none")
    if place != "none" and zero["stage"] != 3:
        raise ConfigError(
            f"offload_param is {place!r} and the stage is {zero['stage']}; only stage 3 shards parameters"
        )


def _settle_precision(written: Written, config: Config, name: str, chosen: str) -> None:
    """A section for fp16 or bf16 is the wish for the engine's own; fp16 needs it, for its losses are scaled."""
    if name not in config and not (name == "fp16" and chosen == "fp16"):
        return
    section = config.setdefault(name, {"enabled": True})
    said = section.get("enabled", False)
    if said not in (AUTO, chosen == name):
        raise ConfigError(
            f'{written.origin}: {name}.enabled is {json.dumps(said)} and mixed_precision is {chosen!r}; write "auto", '
            "or make them agree"
        )
    section["enabled"] = chosen == name


def _refuse_autocast(written: Written, config: Config) -> None:
    if config.get("torch_autocast", {}).get("enabled"):
        raise ConfigError(
            f"{written.origin}: torch_autocast is part of the engine's own forward, and here the model itself is called; take "
            "the section out, and choose mixed_precision, which runs forward under autocast"
        )


def _unfilled(section: Mapping[str, Any], within: str = "") -> Iterator[str]:
    for key, value in section.items():
        if value == AUTO:
            yield f"{within}{key}"
        elif isinstance(value, Mapping):
            yield from _unfilled(value, f"{within}{key}.")
