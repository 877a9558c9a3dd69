"""`accel launch` by Accelerate's names: a parser with its spelling, and a function that starts what was parsed."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from accel_runtime.cli.flags import WITHOUT_MEANING
from accel_runtime.cli.launch import command
from accel_runtime.commands.config.config_args import default_config_file, load_config_from_file
from accel_runtime.config_file import read_config
from accel_runtime.options import key_types
from accel_runtime.unsupported import absent
from accel_runtime.values import plain_type


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of `accel launch`; `alone` takes no value."""

    option: str
    alone: bool
    kind: type
    help: str | None

    @property
    def name(self) -> str:
        """As Accelerate spells it, and as the parsed arguments have it."""
        return self.option.lstrip("-").replace("-", "_")

    @property
    def default(self) -> Any:
        """What Accelerate takes values for that are always so here is True."""
        return False if self.alone else True if WITHOUT_MEANING.get(self.option) else None


def flags() -> Iterator[Flag]:
    """Those of the command, ours and Accelerate's."""
    for option in command.params:
        if isinstance(option, click.Option):
            name = max(option.opts, key=len)
            kind = plain_type(key_types()[option.name]) if option.name in key_types() else str
            yield Flag(name, option.is_flag, kind, None if option.hidden else option.help)


def launch_command_parser(subparsers: Any = None) -> argparse.ArgumentParser:
    """Takes flags with underscores and with hyphens."""
    about = "Start a script on one or many processes, as in: accel launch --num-processes 2 train.py"
    parser: argparse.ArgumentParser = (
        argparse.ArgumentParser(description=about)
        if subparsers is None
        else subparsers.add_parser("launch", description=about)
    )
    for flag in flags():
        way: dict[str, Any] = (
            {"action": "store_true"} if flag.alone else {"type": flag.kind if flag.kind is int else str}
        )
        spellings = ["-m", "--module"] if flag.name == "module" else [f"--{flag.name}"]
        text = flag.help or argparse.SUPPRESS
        parser.add_argument(*spellings, dest=flag.name, default=flag.default, help=text, **way)
        if "_" in flag.name:
            hidden = argparse.SUPPRESS
            parser.add_argument(flag.option, dest=flag.name, default=hidden, help=hidden, **way)
    parser.add_argument("training_script", help="The script, with its own arguments behind it.")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    parser.set_defaults(func=launch_command)
    return parser


def launch_command(args: argparse.Namespace) -> None:
    """Runs `accel launch` with what was parsed, and returns when it has ended; a failure is a CalledProcessError."""
    if args.config_file:
        read_config(Path(args.config_file))  # refused here, as an exception, and not in a process of its own
    subprocess.run([sys.executable, "-m", "accel_runtime", "launch", *_written(args)], check=True)


def _written(args: argparse.Namespace) -> list[str]:
    """The command line that says this."""
    line = []
    for flag in flags():
        value = getattr(args, flag.name, flag.default)
        if value is not None and value != flag.default:
            line += [flag.option] if flag.alone else [flag.option, str(value)]
    return [*line, args.training_script, *args.training_script_args]


def _validate_launch_command(args: argparse.Namespace) -> tuple[argparse.Namespace, Any, bool]:
    """The arguments with what the config file says where they say nothing; that file; whether it says the precision."""
    if args.config_file is None and not Path(default_config_file).is_file():
        return args, None, False
    found = load_config_from_file(args.config_file)
    said = found.to_dict()
    sections = [value for value in said.values() if isinstance(value, dict)]
    unsaid = {flag.name for flag in flags() if getattr(args, flag.name, None) == flag.default}
    for values in (said, *sections):
        for name in values.keys() & unsaid:
            setattr(args, name, values[name])
    return args, found, "mixed_precision" in unsaid & said.keys()


__all__ = ["launch_command", "launch_command_parser"]

__getattr__ = absent(__name__)
