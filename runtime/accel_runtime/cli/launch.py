"""`accel launch`: start a training script on one or many processes and machines."""

from __future__ import annotations

import os
from typing import Any

import click

from accel_runtime.cli.flags import GroupedCommand, settings_flags, typed_flags
from accel_runtime.launch.agent import run_plan
from accel_runtime.launch.plan import Plan, Target, plan_launch
from accel_runtime.machine import this_machine
from accel_runtime.options import Settled, environment_layer, flag_layer, settle


@click.command("launch", cls=GroupedCommand)
@click.option("-m", "--module", is_flag=True, help="SCRIPT is a module, as for python -m.")
@click.option("--dry-run", is_flag=True, help="Print the command that would run, and stop.")
@settings_flags
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(script: str, arguments: tuple[str, ...], module: bool, dry_run: bool, **parameters: Any) -> None:
    """Start SCRIPT with its ARGUMENTS on the processes and machines that the flags, or the configuration, say."""
    settled = settled_from(parameters)
    plan = planned(Target(script, arguments, module), settled)
    if dry_run:
        click.echo(shell_line(plan))
        return
    run_plan(plan)


def settled_from(parameters: dict[str, Any]) -> Settled:
    return settle([flag_layer(typed_flags(parameters)), environment_layer(os.environ)])


def planned(target: Target, settled: Settled) -> Plan:
    return plan_launch(target, settled, this_machine(os.environ), os.environ)


def shell_line(plan: Plan) -> str:
    import shlex

    variables = [f"{name}={shlex.quote(value)}" for name, value in plan.environment.items()]
    return " ".join([*variables, shlex.join(plan.command())])
