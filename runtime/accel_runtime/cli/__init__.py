"""The command `accel`. A subcommand's module is imported when it is called, and torch only when it is needed."""

from __future__ import annotations

import importlib
import sys
from typing import NoReturn

import click

from accel_runtime.errors import AccelError

COMMANDS = {
    "config": "Write down how training runs on this machine.",
    "launch": "Start a training script on one or many processes and machines.",
    "test": "Check this set-up by starting it.",
    "plot": "Draw the curves of a run as a page.",
    "env": "Print versions, devices and configuration for a bug report.",
    "merge-weights": "Write the models of a checkpoint as whole files.",
    "to-accelerate": "Write a checkpoint in the form of Accelerate.",
}


class Commands(click.Group):
    """Knows every subcommand's name and one-line help without importing it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        try:
            module = importlib.import_module(f"accel_runtime.cli.{cmd_name.replace('-', '_')}")
        except ModuleNotFoundError as error:
            # The codemod alone installs this command too, without what it needs to start anything.
            needs = f"accel {cmd_name} needs {error.name}, which is not installed"
            raise AccelError(f"{needs}; in a clone of accel-migrate: pip install '.[runtime]'") from error
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from accel_runtime.nearest import nearest

            raise click.UsageError(f"no such command {args[0]!r}{nearest(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        click.echo(f"accel {version('accel-migrate')}")
    except PackageNotFoundError:
        click.echo("accel, from a source tree that is not installed")
    ctx.exit()


def _print_completion(ctx: click.Context, _: click.Parameter, shell: str | None) -> None:
    if shell is None or ctx.resilient_parsing:
        return
    from click.shell_completion import get_completion_class

    completion = get_completion_class(shell)
    assert completion is not None
    click.echo(completion(accel, {}, "accel", "_ACCEL_COMPLETE").source())
    ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
@click.option(
    "--completion",
    type=click.Choice(("bash", "zsh", "fish")),
    is_eager=True,
    expose_value=False,
    callback=_print_completion,
    help="Print the completion script for a shell.",
)
def accel() -> None:
    """Train the same script on one CPU, many GPUs, several machines."""


def main() -> NoReturn:
    try:
        accel.main(prog_name="accel")
    except AccelError as error:
        click.echo(f"accel: {error}", err=True)
        sys.exit(2)
