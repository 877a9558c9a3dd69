"""`accel merge-weights`: the models of a checkpoint as whole files, for `load_state_dict` on one process."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("merge-weights")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--max-shard-size", default="10GB", show_default=True, metavar="SIZE", help="Of one file, such as 5GB.")
def command(checkpoint: Path, output: Path, max_shard_size: str) -> None:
    """Write the weights of CHECKPOINT, which many processes may have saved in shards, to the folder OUTPUT."""
    from accel_runtime.checkpoint.own_format import parts_of
    from accel_runtime.checkpoint.process_group import CheckpointGroup
    from accel_runtime.checkpoint.reading import open_checkpoint
    from accel_runtime.errors import CheckpointError
    from accel_runtime.weights import save_weights
    from accel_runtime.world import World

    saved = open_checkpoint(checkpoint, CheckpointGroup(World(0, 1, 0, 1)))
    models = parts_of(saved, "model")
    if not models:
        raise CheckpointError(f"{checkpoint} has no model: a hook of the script may have saved it elsewhere")
    for part in models:
        folder = output if len(models) == 1 else output / part
        for path in save_weights(saved.weights(part), folder, max_shard_size, safe=True):
            click.echo(path)
