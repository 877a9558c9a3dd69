"""`accel test`: check this set-up by starting it, with the same flags and files as `accel launch`."""

from __future__ import annotations

import os
from typing import Any

import click

from accel_runtime.cli.flags import GroupedCommand, settings_flags, typed_flags
from accel_runtime.cli.launch import named_file, settled_from
from accel_runtime.launch.agent import run_plan
from accel_runtime.launch.plan import Target, plan_launch
from accel_runtime.machine import this_machine

CHECKS = Target("accel_runtime.cli.selftest", module=True)


@click.command("test", cls=GroupedCommand)
@click.option("--config-file", metavar="PATH", help="Read this file instead of accel.yaml.")
@settings_flags
def command(config_file: str | None, **parameters: Any) -> None:
    """Check this set-up for real: start the processes that a launch would, and let them train a little."""
    environ = {**os.environ, **named_file(config_file)}
    settled, _ = settled_from(typed_flags(parameters), environ)
    run_plan(plan_launch(CHECKS, settled, this_machine(environ), environ))
