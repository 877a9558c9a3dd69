"""A checkpoint of ours as a folder that Hugging Face Accelerate's `load_state` takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from accel_runtime.checkpoint.own_format import parts_of
from accel_runtime.checkpoint.reading import Saved
from accel_runtime.errors import CheckpointError


def written_for_peer(saved: Saved, folder: Path) -> Iterator[Path]:
    """Writes the files one by one; what Accelerate has no place for is refused, or is its own to find out anew."""
    ranks = [saved.state(part) for part in _ranks(saved)]
    if any(rank["blocks"] for rank in ranks) and any(any(rank["gradients"]) for rank in ranks):
        raise CheckpointError(
            f"{saved.folder} was saved in the middle of an accumulation window, whose gradients Accelerate does not keep; "
            "convert one that was saved after optimizer.step()"
        )
    folder.mkdir(parents=True, exist_ok=False)
    for part in parts_of(saved, "model"):
        yield _write_weights(folder / f"{part}.safetensors", saved.weights(part))
    for kind in ("optimizer", "scheduler"):
        for part in parts_of(saved, kind):
            yield _write(folder / f"{part}.bin", saved.state(part)["state"])
    for index, part in enumerate(parts_of(saved, "custom", first="custom_0")):
        yield _write(folder / f"custom_checkpoint_{index}.pkl", saved.state(part))
    if saved.has("scaler"):
        yield _write(folder / "scaler.pt", saved.state("scaler"))
    for number, rank in enumerate(ranks):
        yield _write(folder / f"random_states_{number}.pkl", _random(rank["random"]))


def _ranks(saved: Saved) -> list[str]:
    return [part for rank in range(saved.manifest.processes) if saved.has(part := f"rank_{rank}")]


def _write_weights(path: Path, state: dict[str, Any]) -> Path:
    others = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if others:
        raise CheckpointError(
            f"the state of a model has {others[0]}, which is not a tensor, and Accelerate has no place for it"
        )
    save_file({name: value.contiguous() for name, value in state.items()}, path, metadata={"format": "pt"})
    return path


def _write(path: Path, state: Any) -> Path:
    torch.save(state, path)
    return path


def _random(states: dict[str, Any]) -> dict[str, Any]:
    """Under Accelerate's names; the generators of a GPU come along where it would look for them."""
    named = {
        "random_state": states["python"],
        "numpy_random_seed": states["numpy"],
        "torch_manual_seed": states["torch"],
    }
    device = states.get("device")
    return named if device is None else {**named, f"torch_{states['device_kind']}_manual_seed": [device]}
