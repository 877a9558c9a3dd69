"""The questions of `accel config`: only those that matter for this machine and the answers so far."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import questionary

from accel_runtime.config_file import PROJECT_FILE, user_file
from accel_runtime.launch.network import own_address
from accel_runtime.machine import Machine


@dataclass(frozen=True, slots=True)
class Answers:
    file: Path
    values: dict[str, Any]


def ask(machine: Machine, file: Path | None) -> Answers:
    """Ask on the terminal; values at their default are left out of the answers."""
    values: dict[str, Any] = {}
    values |= _processes(machine)
    if values["num_processes"] > 1:
        values |= _strategy(machine)
    values |= _precision(machine)
    values |= _accumulation()
    return Answers(file or _where(), values)


def _processes(machine: Machine) -> dict[str, Any]:
    machines = _number("How many machines?", 1, "Each runs accel launch with the same settings.")
    found = (
        f"{len(machine.devices)} {machine.kind} devices" if machine.devices else f"{machine.cores} CPU cores, no GPU"
    )
    here = _number("How many processes on each machine?", max(1, len(machine.devices)), f"Here: {found}.")
    if machines == 1:
        return {"num_processes": here}
    address = _text(
        "Address of the first machine?", own_address(), "Every machine must reach it; this one's is offered."
    )
    port = _number("Port on the first machine?", 29500, "Open between the machines.")
    place = {"main_process_ip": address, "main_process_port": port}  # which machine is the first, the address tells
    return {"num_machines": str(machines), "num_processes": machines * here, **place}


def _strategy(machine: Machine) -> dict[str, Any]:
    offered = ["ddp", "fsdp", *(["deepspeed"] if find_spec("deepspeed") else [])]
    help_line = "ddp copies the model to every process; the others shard it, for models that do not fit."
    strategy = _choice("How is the model spread over the processes?", offered, help_line)
    if strategy == "deepspeed":
        stage = _choice("ZeRO stage?", ["1", "2", "3"], "Shards the optimizer; gradients too; parameters too.")
        return {"strategy": strategy, "zero_stage": int(stage)}
    return {} if strategy == "ddp" else {"strategy": strategy}


def _precision(machine: Machine) -> dict[str, Any]:
    offered = ["no", "bf16"] if machine.kind == "cpu" else ["no", "bf16", "fp16", "fp8"]
    chosen = _choice("Mixed precision?", offered, "bf16 is faster on recent devices and needs no loss scaling.")
    return {"mixed_precision": chosen}


def _accumulation() -> dict[str, Any]:
    steps = _number("Batches for each optimizer step?", 1, "More than 1 accumulates gradients.")
    return {} if steps == 1 else {"gradient_accumulation_steps": steps}


def _where() -> Path:
    places = {f"in this project ({PROJECT_FILE})": Path(PROJECT_FILE), "for all my projects": user_file(os.environ)}
    return places[_choice("Where to keep this?", list(places), "The file of a project comes first.")]


def _number(question: str, default: int, help_line: str, least: int = 1) -> int:
    def problem(text: str) -> bool | str:
        return (text.strip().isdecimal() and int(text) >= least) or f"a whole number, {least} or more"

    return int(_answer(questionary.text(question, default=str(default), instruction=help_line + " ", validate=problem)))


def _text(question: str, default: str, help_line: str) -> str:
    return _answer(questionary.text(question, default=default, instruction=help_line + " ")).strip()


def _choice(question: str, offered: Sequence[str], help_line: str) -> str:
    return _answer(questionary.select(question, choices=list(offered), default=offered[0], instruction=help_line))


def _answer(question: questionary.Question) -> str:
    """The answer; ctrl-C ends the questionnaire with nothing written."""
    answer = question.ask(kbi_msg="nothing was written")
    if answer is None:
        raise click.Abort
    return str(answer)
