"""`accel test`: check this set-up by starting it, as it is configured."""

from __future__ import annotations

import click


@click.command("test")
def command() -> None:
    """Check this set-up by starting it."""
