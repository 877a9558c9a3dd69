"""`accel config`: write down once how training runs here, by answering a few questions or by naming the values."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from accel_runtime.cli.launch import named_file, settled_from
from accel_runtime.config_file import PROJECT_FILE, read_config, write_config
from accel_runtime.errors import ConfigError
from accel_runtime.launch.explain import values_with_origins
from accel_runtime.machine import Machine, this_machine


@click.command("config")
@click.argument("word", required=False, type=click.Choice(["default", "update"]), metavar="[default]")
@click.option(
    "--file",
    "--config_file",
    "path",
    metavar="PATH",
    help=f"The file to write or show. Default: {PROJECT_FILE} here.",
)
@click.option("--defaults", is_flag=True, help="Write what suits this machine, without questions.")
@click.option("--set", "pairs", metavar="KEY=VALUE", multiple=True, help="Write this value; may be repeated.")
@click.option("--show", is_flag=True, help="Print every value and where it comes from, and write nothing.")
def command(word: str | None, path: str | None, defaults: bool, pairs: tuple[str, ...], show: bool) -> None:
    """Write down how training runs on this machine, as a small YAML file; `default` is as --defaults."""
    if word == "update":
        click.echo("accel config: files need no update, they are read as they were written")
        return
    defaults = defaults or word == "default"
    if show:
        settled, files = settled_from({}, {**os.environ, **named_file(path)})
        click.echo("\n".join([*values_with_origins(settled), *(note for file in files for note in file.notes)]))
        return
    machine = this_machine(os.environ)
    file = Path(path or PROJECT_FILE)
    if defaults or pairs:
        kept = dict(read_config(file).values) if pairs and not defaults and file.is_file() else {}
        start = default_values(machine) if defaults else kept
        _write(file, {**start, **_parsed(pairs)})
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        click.echo(
            "accel config asks its questions on a terminal, and this is not one; write the values with "
            "`accel config --defaults` or `accel config --set num_processes=2 --set mixed_precision=bf16`",
            err=True,
        )
        sys.exit(2)

    from accel_runtime.cli.questions import ask

    answers = ask(machine, Path(path) if path else None)
    _write(answers.file, answers.values)


def default_values(machine: Machine) -> dict[str, Any]:
    """What one would choose on this machine without knowing the model."""
    return {"num_processes": max(1, len(machine.devices)), "mixed_precision": "no"}


def _parsed(pairs: tuple[str, ...]) -> dict[str, str]:
    wrong = next((pair for pair in pairs if "=" not in pair), None)
    if wrong is not None:
        raise ConfigError(f"--set takes KEY=VALUE such as num_processes=2, not {wrong!r}")
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}


def _write(file: Path, values: Mapping[str, Any]) -> None:
    write_config(file, values)
    click.echo(f"wrote {file}")
    click.echo(file.read_text(encoding="utf-8").rstrip())
