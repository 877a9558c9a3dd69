"""`accel to-accelerate`: a checkpoint as Hugging Face Accelerate would have saved it."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("to-accelerate")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("output", type=click.Path(path_type=Path))
def command(checkpoint: Path, output: Path) -> None:
    """Write CHECKPOINT to the new folder OUTPUT in the form that Accelerate's load_state takes."""
    from accel_runtime.checkpoint.peer_writing import written_for_peer
    from accel_runtime.checkpoint.process_group import CheckpointGroup
    from accel_runtime.checkpoint.reading import open_checkpoint
    from accel_runtime.errors import CheckpointError
    from accel_runtime.world import World

    if output.exists():
        raise CheckpointError(f"{output} exists; name a folder that does not")
    for path in written_for_peer(open_checkpoint(checkpoint, CheckpointGroup(World(0, 1, 0, 1))), output):
        click.echo(path)
