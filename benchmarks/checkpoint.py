"""Saving and loading one state, next to the ways it is done elsewhere, all in one run on one disk.

The state is a model with AdamW's two moments. `raw write` is the same number of bytes, written and synced; it is the
floor. Each line is the median of several rounds, each in another order.
"""

from __future__ import annotations

import argparse
import os
import random
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


def replaced(path: Path, write: Callable[[Path], object]) -> None:
    """A fresh file, synced, that then takes the old one's place: to write over the old one would be to risk it."""
    beside = path.with_suffix(".new")
    write(beside)
    with beside.open("rb+") as file:
        os.fsync(file.fileno())
    beside.replace(path)


def raw_write(path: Path, content: bytearray) -> None:
    with path.open("wb", buffering=0) as file:
        for start in range(0, len(content), 1 << 24):
            file.write(memoryview(content)[start : start + (1 << 24)])


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


def ways(folder: Path, megabytes: int, accelerator: Accelerator) -> dict[str, Callable[[], object]]:
    model, optimizer = accelerator.prepare(*state_of(megabytes))
    tensors = tensors_of(model, optimizer)
    # Filled: memory that was never written to is slow to read.
    content = bytearray(b"x" * sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()))
    pickled, safe, ours = folder / "state.pt", folder / "state.safetensors", folder / "ours"

    def background() -> None:
        accelerator.save_state(folder / "background", wait=False)

    return {
        "raw write": lambda: replaced(folder / "raw", lambda path: raw_write(path, content)),
        "save_state": lambda: accelerator.save_state(ours),
        "torch.save": lambda: replaced(pickled, lambda path: torch.save(tensors, path)),
        "safetensors save_file": lambda: replaced(safe, lambda path: save_file(tensors, path)),
        "one copy in memory": lambda: [tensor.clone() for tensor in tensors.values()],
        "save_state(wait=False), until it returns": background,
        "load_state": lambda: accelerator.load_state(ours),
        "torch.load": lambda: torch.load(pickled),
        "safetensors load_file": lambda: [tensor.clone() for tensor in load_file(safe).values()],
        **peer(folder, megabytes),
    }


def medians(folder: Path, megabytes: int, rounds: int) -> dict[str, float]:
    """Seconds by way. The first round leaves the files that are loaded, and is not counted; then the order is drawn."""
    accelerator = Accelerator(cpu=True)
    todo = ways(folder, megabytes, accelerator)
    times: dict[str, list[float]] = {name: [] for name in todo}
    for number in range(rounds + 1):
        for name in todo if number == 0 else random.Random(number).sample(list(todo), len(todo)):
            # Nobody pays for what another has left unwritten.
            accelerator._checkpoints.background.settle()
            os.sync()
            start = time.perf_counter()
            todo[name]()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=240)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="on the disk to measure")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        median = medians(folder, arguments.megabytes, arguments.rounds)
    finally:
        shutil.rmtree(folder)
    for name, seconds in median.items():
        print(f"{name:42} {seconds:8.3f} s")
    print(f"save_state / raw write: {median['save_state'] / median['raw write']:.2f} (at most 1.3)")
    copy = median["one copy in memory"]
    blocking = median["save_state(wait=False), until it returns"]
    print(f"blocking part / one copy in memory: {blocking / copy:.2f} (at most 1.5)")


if __name__ == "__main__":
    main()
