"""Weights on the disk: a folder with one file of plain bytes for each, and an index with their types and shapes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from accel_runtime.errors import CheckpointError, UsageError
from accel_runtime.large.tensors import Place, as_device
from accel_runtime.saving import replaced

INDEX = "index.json"
# What the index says of one weight: dtype and shape, or the safetensors file that has it.
Entry = dict[str, Any]
Folder = str | os.PathLike[str]


def offload_weight(
    weight: Tensor, weight_name: str, offload_folder: Folder, index: dict[str, Entry] | None = None
) -> dict[str, Entry] | None:
    """Writes one weight, and says so in the index if there is one."""
    held = weight.detach().cpu().contiguous()
    flat = held.reshape(-1).view(torch.uint8) if held.numel() else torch.empty(0, dtype=torch.uint8)
    with replaced(Path(offload_folder) / f"{weight_name}.dat") as beside:
        flat.numpy().tofile(beside)
    if index is not None:
        index[weight_name] = {"dtype": str(held.dtype).removeprefix("torch."), "shape": list(held.shape)}
    return index


def load_offloaded_weight(weight_file: Folder, weight_info: Entry) -> Tensor:
    """Reads one weight."""
    dtype, shape = getattr(torch, weight_info["dtype"]), torch.Size(weight_info["shape"])
    size = Path(weight_file).stat().st_size
    if size != shape.numel() * dtype.itemsize:
        raise CheckpointError(f"{weight_file} has {size} bytes, and {list(shape)} of {dtype} is another size")
    if not shape.numel():
        return torch.empty(shape, dtype=dtype)
    return torch.from_file(str(weight_file), shared=False, size=shape.numel(), dtype=dtype).reshape(shape)


def save_offload_index(index: Mapping[str, Entry] | None, offload_folder: Folder) -> None:
    """Adds to the folder's index."""
    if not index:
        return
    path = Path(offload_folder) / INDEX
    known = json.loads(path.read_text()) if path.exists() else {}
    with replaced(path) as beside:
        beside.write_text(json.dumps({**known, **index}, indent=2) + "\n")


def offload_state_dict(save_dir: Folder, state_dict: Mapping[str, Tensor]) -> None:
    """Writes all weights, and their index."""
    Path(save_dir).mkdir(parents=True, exist_ok=True)
    index: dict[str, Entry] = {}
    for name, weight in state_dict.items():
        offload_weight(weight, name, save_dir, index)
    save_offload_index(index, save_dir)


class PrefixedDataset(Mapping[str, Any]):
    """The weights of one module, by their names in it."""

    def __init__(self, dataset: Mapping[str, Any], prefix: str) -> None:
        self.dataset = dataset
        self.prefix = prefix

    def __getitem__(self, key: str) -> Any:
        return self.dataset[f"{self.prefix}{key}"]

    def __iter__(self) -> Iterator[str]:
        return (key for key in self.dataset if key.startswith(self.prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class OffloadedWeightsLoader(Mapping[str, Tensor]):
    """Weights by name, from memory if they are there, else read from the disk each time they are asked for."""

    def __init__(
        self,
        state_dict: Mapping[str, Tensor] | None = None,
        save_folder: Folder | None = None,
        index: Mapping[str, Entry] | None = None,
        device: Place | None = None,
    ) -> None:
        if state_dict is None and save_folder is None and index is None:
            raise UsageError("weights come from a state_dict, a save_folder or an index, and none was given")
        if index is None and save_folder is not None:
            index = json.loads((Path(save_folder) / INDEX).read_text())
        self.state_dict = state_dict or {}
        self.save_folder = save_folder
        self.index = index or {}
        self.all_keys = list(dict.fromkeys([*self.state_dict, *self.index]))
        self.device = device

    def __getitem__(self, key: str) -> Tensor:
        if key in self.state_dict:
            return self.state_dict[key]
        entry = self.index[key]
        if "safetensors_file" in entry:
            return _from_safetensors(entry, key, torch.device("cpu") if self.device is None else as_device(self.device))
        if self.save_folder is None:
            raise UsageError(f"the index says that {key} is in a file of its own, and no folder was given")
        return load_offloaded_weight(Path(self.save_folder) / f"{key}.dat", entry)

    def __iter__(self) -> Iterator[str]:
        return iter(self.all_keys)

    def __len__(self) -> int:
        return len(self.all_keys)


def _from_safetensors(entry: Entry, key: str, device: torch.device) -> Tensor:
    from safetensors import safe_open

    with safe_open(entry["safetensors_file"], framework="pt") as file:
        weight: Tensor = file.get_tensor(entry.get("weight_name", key))
    return weight.to(device, getattr(torch, entry["dtype"]) if "dtype" in entry else None)


def extract_submodules_state_dict(state_dict: Mapping[str, Tensor], submodule_names: list[str]) -> dict[str, Tensor]:
    """The part of a state dict that belongs to the named modules or tensors."""
    wanted = tuple(f"{name}." if name else "" for name in submodule_names)
    return {name: weight for name, weight in state_dict.items() if f"{name}.".startswith(wanted)} if wanted else {}
