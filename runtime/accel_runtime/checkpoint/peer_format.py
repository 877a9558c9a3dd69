"""Checkpoint folders of Hugging Face Accelerate, read without running anything that is in them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy
import torch

from accel_runtime.checkpoint.encoding import State
from accel_runtime.checkpoint.loaded import Kept, Loaded
from accel_runtime.checkpoint.manifest import NAME
from accel_runtime.checkpoint.run_state import numbered
from accel_runtime.checkpoint.tensors import read_tensors
from accel_runtime.errors import CheckpointError
from accel_runtime.world import World

MODEL_STEMS = {"model": "safetensors", "pytorch_model": "bin"}


def is_of_peer(folder: Path) -> bool:
    """Whether Accelerate saved it: ours has a manifest, and no pickles even when the manifest is lost."""
    return not (folder / NAME).exists() and (folder / "random_states_0.pkl").exists()


def loaded_from_peer(folder: Path, world: World) -> Loaded:
    """Accelerate keeps no digests, no position in loaders and no gradients: those parts stay as they are."""
    found = [(stem, suffix) for stem, suffix in MODEL_STEMS.items() if (folder / f"{stem}.{suffix}").is_file()]
    stem, suffix = found[0] if found else ("model", "safetensors")
    scaler = folder / "scaler.pt"
    states = folder / f"random_states_{world.rank}.pkl"
    return Loaded(
        folder=folder,
        processes=len(list(folder.glob("random_states_*.pkl"))),
        models=_all(folder, stem, suffix),
        optimizers=_all(folder, "optimizer", "bin"),
        schedulers=_all(folder, "scheduler", "bin"),
        objects=[Kept(path, _read(path)) for path in _custom(folder)],
        scaler=Kept(scaler, _read(scaler)) if scaler.is_file() else None,
        random=_random(_read(states)) if states.is_file() else None,
    )


def _all(folder: Path, stem: str, suffix: str) -> list[Kept]:
    found: list[Kept] = []
    while (path := folder / f"{numbered(stem, len(found))}.{suffix}").is_file():
        found.append(Kept(path, read_tensors(path) if suffix == "safetensors" else _read(path)))
    return found


def _custom(folder: Path) -> list[Path]:
    found: list[Path] = []
    while (path := folder / f"custom_checkpoint_{len(found)}.pkl").is_file():
        found.append(path)
    return found


def _read(path: Path) -> State:
    from numpy._core.multiarray import _reconstruct

    # What the state of NumPy's generator is made of; none of these does anything but build an array.
    arrays: list[Any] = [_reconstruct, numpy.ndarray, numpy.dtype, type(numpy.dtype(numpy.uint32))]
    try:
        with torch.serialization.safe_globals(arrays):
            return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        message = f"{path} holds more than tensors, numbers and containers, or is damaged: {reason}"
        raise CheckpointError(message) from error


def _random(states: dict[str, State]) -> dict[str, State]:
    return {
        "torch": states["torch_manual_seed"],
        "python": states["random_state"],
        "numpy": states["numpy_random_seed"],
        "own": [],
    }
