"""What one of many ranks pays to open a sharded checkpoint and to read its shards, beyond the bytes of its own.

The ranks are simulated with torch's fake process group: the folder holds the index of all ranks and the shards of one.
Each number of ranks is measured in a process of its own; every rank holds two rows of every tensor, so the bytes that it
reads are the same everywhere.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RANKS = (8, 64, 512, 4096)
TENSORS = 2400


def measured(ranks: int, tensors: int) -> None:
    """Prints the seconds and the megabytes of one rank in the middle."""
    import msgspec
    import torch
    import torch.distributed as dist
    from accel_runtime.checkpoint.manifest import Manifest, write_manifest
    from accel_runtime.checkpoint.process_group import CheckpointGroup
    from accel_runtime.checkpoint.reading import digested_here, open_checkpoint
    from accel_runtime.checkpoint.shard_index import Block, block_name, sharded_as
    from accel_runtime.checkpoint.tensors import Digested, digest_of, write_tensors, write_text
    from accel_runtime.world import World
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    rank = ranks // 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        blocks = [Block((2 * one, 0), (2, 4), one) for one in range(ranks)]
        start = time.perf_counter()
        # Every tensor is cut alike; what process 0 pays for each when it saves.
        index = {f"model/{one}": sharded_as("", torch.float32, (2 * ranks, 4), blocks) for one in range(tensors)}
        saved = time.perf_counter() - start
        own = {block_name(key, (2 * rank, 0)): torch.ones(2, 4) for key in index}
        written = [write_tensors(folder / f"shards_{rank}.safetensors", own)]
        written.append(write_text(folder / "shards.json", msgspec.json.encode(index).decode()))
        names = [
            f"{kind}_{one}.{end}" for one in range(ranks) for kind, end in KINDS if (kind, one) != ("shards", rank)
        ]
        others = [Digested(name, 1 << 20, "0" * 64) for name in names]
        write_manifest(folder, Manifest(0, 0, 0, ranks, 0.0, (*written, *others)))

        dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
        world = World(rank, ranks, rank % 8, 8)
        mesh = init_device_mesh("cpu", (ranks,))
        like = {key.split("/")[1]: DTensor.from_local(torch.zeros(2, 4), mesh, [Shard(0)]) for key in index}
        # The files of this rank that are not there: the bytes are not what is measured.
        import accel_runtime.checkpoint.reading as reading

        reading.damage_of = lambda folder, file: (
            None if file in others else _damage(digest_of(folder / file.name), file)
        )
        before, start = _peak(), time.perf_counter()
        checkpoint = open_checkpoint(folder, CheckpointGroup(world))
        opened = time.perf_counter()
        tensors_read = checkpoint.weights("model", like)
        done = time.perf_counter()
        assert all(tensor.to_local().sum() == 8 for tensor in tensors_read.values())
        files = len(digested_here(checkpoint.manifest, world))
        size = (folder / "shards.json").stat().st_size
        print(f"{opened - start:.3f} {done - opened:.3f} {_peak() - before:.0f} {size} {files} {saved:.3f}")


KINDS = (("rank", "json"), ("rank", "safetensors"), ("shards", "safetensors"))


def _damage(found: object, expected: object) -> str | None:
    return None if found == expected else "differs"


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensors", type=int, default=TENSORS)
    parser.add_argument("--ranks", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ranks:
        measured(arguments.ranks, arguments.tensors)
        return
    print(f"{arguments.tensors:,} tensors, one rank")
    print(
        f"{'ranks':>6}{'open':>10}{'read':>10}{'memory':>11}{'shards.json':>13}{'digested files':>16}{'index, rank 0':>15}"
    )
    totals = {}
    for ranks in RANKS:
        command = [sys.executable, __file__, "--ranks", str(ranks), "--tensors", str(arguments.tensors)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        opened, read, memory, size, files, saved = map(float, told)
        totals[ranks] = opened + read
        print(
            f"{ranks:>6}{opened:>8.2f} s{read:>8.2f} s{memory:>8.0f} MB{size / 1e3:>10.0f} kB{files:>16.0f}{saved:>13.2f} s"
        )
    print(f"4,096 ranks / 8 ranks: {totals[4096] / totals[8]:.2f} (at most 2)")


if __name__ == "__main__":
    main()
