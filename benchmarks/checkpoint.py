"""Saving and loading one state, next to the ways it is done elsewhere, all in one run on one disk.

The state is a model with AdamW's two moments. `raw write` is the same number of bytes, written and synced; it is the
floor. Each line is the median of several rounds that go through all ways in turn.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from accel_runtime import Accelerator
from safetensors.torch import load_file, save_file
from torch import Tensor, nn


def state_of(megabytes: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model whose weights and moments are that large together."""
    layers = max(1, megabytes // 12)
    model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(layers)))
    optimizer = torch.optim.AdamW(model.parameters())
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def tensors_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    moments = {
        f"{index}.{name}": value for index, one in enumerate(optimizer.state.values()) for name, value in one.items()
    }
    return {**model.state_dict(), **moments}


def synced(path: Path, write: Callable[[], object]) -> None:
    """Until the bytes are on the disk, as for a checkpoint."""
    write()
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def raw_write(path: Path, content: bytearray) -> None:
    with path.open("wb", buffering=0) as file:
        for start in range(0, len(content), 1 << 24):
            file.write(memoryview(content)[start : start + (1 << 24)])
        os.fsync(file.fileno())


def peer(folder: Path, megabytes: int) -> dict[str, Callable[[], object]]:
    """Accelerate, where it is installed."""
    try:
        import accelerate
    except ImportError:
        print("accelerate is not installed: pip install accelerate for the comparison")
        return {}
    theirs = accelerate.Accelerator(cpu=True)
    theirs.prepare(*state_of(megabytes))
    where = str(folder / "peer")
    return {
        "accelerate save_state (not synced)": lambda: theirs.save_state(where),
        "accelerate load_state": lambda: theirs.load_state(where),
    }


def ways(folder: Path, megabytes: int) -> dict[str, Callable[[], object]]:
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(*state_of(megabytes))
    tensors = tensors_of(model, optimizer)
    content = bytearray(sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()))
    pickled, safe, ours = folder / "state.pt", folder / "state.safetensors", folder / "ours"

    def background() -> None:
        accelerator.save_state(folder / "background", wait=False)

    return {
        "raw write": lambda: raw_write(folder / "raw", content),
        "save_state": lambda: accelerator.save_state(ours),
        "torch.save": lambda: synced(pickled, lambda: torch.save(tensors, pickled)),
        "safetensors save_file": lambda: synced(safe, lambda: save_file(tensors, safe)),
        "one copy in memory": lambda: [tensor.clone() for tensor in tensors.values()],
        "save_state(wait=False), until it returns": background,
        "": accelerator._checkpoints.background.settle,
        "load_state": lambda: accelerator.load_state(ours),
        "torch.load": lambda: torch.load(pickled),
        "safetensors load_file": lambda: [tensor.clone() for tensor in load_file(safe).values()],
        **peer(folder, megabytes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=240)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="on the disk to measure")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        times: dict[str, list[float]] = {}
        todo = ways(folder, arguments.megabytes)
        for _ in range(arguments.rounds):
            for name, work in todo.items():
                start = time.perf_counter()
                work()
                times.setdefault(name, []).append(time.perf_counter() - start)
    finally:
        shutil.rmtree(folder)
    median = {name: statistics.median(values) for name, values in times.items() if name}
    for name, seconds in median.items():
        print(f"{name:42} {seconds:8.3f} s")
    print(f"save_state / raw write: {median['save_state'] / median['raw write']:.2f} (at most 1.3)")
    copy = median["one copy in memory"]
    blocking = median["save_state(wait=False), until it returns"]
    print(f"blocking part / one copy in memory: {blocking / copy:.2f} (at most 1.5)")


if __name__ == "__main__":
    main()
