"""`accel launch`: start a training script on one or many processes and machines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from accel_runtime.cli.flags import GroupedCommand, settings_flags, typed_flags
from accel_runtime.config_file import VARIABLE, ConfigFile, config_files
from accel_runtime.launch.agent import run_plan
from accel_runtime.launch.allocation import machines_of
from accel_runtime.launch.explain import explanation, shell_line
from accel_runtime.launch.plan import Target, plan_launch, require_script
from accel_runtime.launch.submit import SCHEDULERS, Queue, submit
from accel_runtime.machine import this_machine
from accel_runtime.options import Settled, detection_layer, environment_layer, flag_layer, settle, unread_variables
from accel_runtime.peer_environment import peer_layer, unread_of_peer


@click.command("launch", cls=GroupedCommand)
@click.option("-m", "--module", is_flag=True, help="SCRIPT is a module, as for python -m.")
@click.option("--config-file", metavar="PATH", help="Read this file instead of accel.yaml.")
@click.option("--explain", is_flag=True, help="Print every value with its origin and what would run, and stop.")
@click.option("--dry-run", is_flag=True, help="Print the command that would run, and stop.")
@click.option("--submit", "scheduler", metavar="|".join(SCHEDULERS), help="Print the job for a scheduler instead.")
@click.option("--partition", metavar="NAME", help="With --submit slurm: the partition of the job.")
@click.option("--account", metavar="NAME", help="With --submit slurm: the account that pays for it.")
@click.option("--time", "time_limit", metavar="HH:MM:SS", help="With --submit slurm: how long it may run.")
@click.option("--setup", multiple=True, metavar="COMMAND", help="With --submit slurm: a shell command before the run.")
@click.option("--yes", is_flag=True, help="With --submit slurm: hand the job over to sbatch.")
@settings_flags
@click.argument("script", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    script: str | None,
    arguments: tuple[str, ...],
    module: bool,
    config_file: str | None,
    explain: bool,
    dry_run: bool,
    scheduler: str | None,
    partition: str | None,
    account: str | None,
    time_limit: str | None,
    setup: tuple[str, ...],
    yes: bool,
    **parameters: Any,
) -> None:
    """Start SCRIPT with its ARGUMENTS on the processes and machines that the flags, or the configuration, say."""
    if script is None and not explain:
        raise click.UsageError("which script? as in: accel launch --num-processes 2 train.py")
    environ = {**os.environ, **named_file(config_file)}
    settled, files = settled_from(typed_flags(parameters), environ)
    target = Target(script or "SCRIPT", arguments, module)
    if script is not None:
        require_script(target)
    queue = Queue(partition, account, time_limit, setup)
    if scheduler:
        click.echo(submit(scheduler, target, settled.settings, yes, queue))
        return
    if queue != Queue():
        raise click.UsageError("--partition, --account, --time and --setup say how to submit; add --submit slurm")
    machine = this_machine(environ)
    plan = plan_launch(target, settled, machine, environ)
    if explain:
        notes = [note for file in files for note in file.notes]
        click.echo(explanation(plan, settled, machine, notes))
    elif dry_run:
        click.echo(shell_line(plan))
    else:
        run_plan(plan)


def named_file(path: str | None) -> dict[str, str]:
    """A config file as the script's processes are told of it: they find it wherever they change to."""
    return {VARIABLE: str(Path(path).absolute())} if path else {}


def settled_from(flags: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[Settled, list[ConfigFile]]:
    """The values of a launch from here: flags, environment, files, and what a scheduler has decided."""
    for line in (*unread_variables(environ), *unread_of_peer(environ)):
        click.echo(f"accel: {line}", err=True)
    files = config_files(environ)
    layers = [flag_layer(flags), environment_layer(environ), peer_layer(environ), *(file.layer() for file in files)]
    return settle([*layers, detection_layer(machines_of(environ))]), files
