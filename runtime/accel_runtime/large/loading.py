"""Weights from a checkpoint into a model, tensor by tensor: to a device, to memory or to the disk."""

from __future__ import annotations

import json
import logging
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from accel_runtime.errors import CheckpointError, ConfigError
from accel_runtime.large.aligning import align_module_device, has_offloaded_params
from accel_runtime.large.device_map import check_tied_parameters_on_same_device, place_of
from accel_runtime.large.offload import Entry, Folder, load_offloaded_weight, offload_weight, save_offload_index
from accel_runtime.large.tensors import (
    META,
    Place,
    as_device,
    as_dtype,
    find_tied_parameters,
    retie_parameters,
    set_module_tensor_to_device,
)

logger = logging.getLogger(__name__)

WHOLE = ("pytorch_model.bin", "model.safetensors")


def load_checkpoint_in_model(
    model: nn.Module,
    checkpoint: Folder,
    device_map: Mapping[str, Place] | None = None,
    offload_folder: Folder | None = None,
    dtype: str | torch.dtype | None = None,
    offload_state_dict: bool = False,
    offload_buffers: bool = False,
    keep_in_fp32_modules: list[str] | None = None,
    offload_8bit_bnb: bool = False,
    strict: bool = False,
    full_state_dict: bool = True,
    broadcast_from_rank0: bool = False,
) -> None:
    """Loads a file, or the shards of an index; with a device map each tensor goes to its place as it is read.

    `offload_state_dict` changes nothing: one tensor at a time is in memory beside those that are at their place.
    """
    if offload_8bit_bnb:
        raise ConfigError("weights that bitsandbytes quantizes cannot be offloaded here; load them on one device")
    files = checkpoint_files(Path(checkpoint))
    if device_map is None:
        _load_whole(model, files, strict, full_state_dict, broadcast_from_rank0)
        return
    if "disk" in device_map.values() and offload_folder is None:
        raise ConfigError("the device_map sends weights to the disk; pass the folder for them as offload_folder")
    tied = find_tied_parameters(model)
    check_tied_parameters_on_same_device(tied, device_map)
    loading = _Loading(model, device_map, offload_folder, as_dtype(dtype), offload_buffers, keep_in_fp32_modules or [])
    stored = [name for file in files for name in tensor_names(file)]
    _compare(set(model.state_dict()), set(stored), tied, strict)
    # The format has no notion of sharing: a tied weight is stored under one of its names.
    others = {name: [o for o in group if o != name and o not in stored] for group in tied for name in group}
    for file in files:
        for name, tensor in read_tensors(file):
            for target in [name, *others.get(name, [])]:
                loading.put(target, tensor)
    if offload_folder is not None:
        save_offload_index(loading.index, offload_folder)
    retie_parameters(model, tied)


class _Loading:
    """Where tensors go, and in which type."""

    def __init__(
        self,
        model: nn.Module,
        device_map: Mapping[str, Place],
        folder: Folder | None,
        dtype: torch.dtype | None,
        offload_buffers: bool,
        in_fp32: list[str],
    ) -> None:
        self.model, self.device_map, self.folder, self.dtype, self.in_fp32 = model, device_map, folder, dtype, in_fp32
        self.own = model.state_dict()
        self.stays = set() if offload_buffers else {name for name, _ in model.named_buffers()}
        self.index: dict[str, Entry] = {}

    def put(self, name: str, tensor: Tensor) -> None:
        if name not in self.own:
            return
        place = place_of(name, self.device_map)
        if place is None:
            raise ConfigError(f"the device_map gives no device for {name}")
        dtype = self._dtype(name)
        if place != "disk" or name in self.stays:
            device = "cpu" if place == "disk" else place
            set_module_tensor_to_device(self.model, name, device, tensor, dtype)
            return
        assert self.folder is not None
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        kept = self.own[name].dtype if dtype is None else dtype
        offload_weight(tensor.to(kept) if tensor.is_floating_point() else tensor, name, self.folder, self.index)
        set_module_tensor_to_device(self.model, name, META, dtype=dtype)

    def _dtype(self, name: str) -> torch.dtype | None:
        wide = any(f".{part}." in f".{name}." for part in self.in_fp32)
        return torch.float32 if wide and self.dtype == torch.float16 else self.dtype


def _load_whole(
    model: nn.Module, files: list[Path], strict: bool, full_state_dict: bool, broadcast_from_rank0: bool
) -> None:
    """By torch itself, which knows sharded models."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    reads = not broadcast_from_rank0 or torch.distributed.get_rank() == 0
    state: dict[str, Any] = {name: tensor for file in files for name, tensor in read_tensors(file)} if reads else {}
    tied = find_tied_parameters(model)
    if reads:
        _compare(set(model.state_dict()), set(state), tied, strict)
        for group in tied:
            held = next((state[name] for name in group if name in state), None)
            state |= {} if held is None else {name: state.get(name, held) for name in group}
    if not torch.distributed.is_initialized():
        _give_memory(model, state)
    options = StateDictOptions(full_state_dict=full_state_dict, strict=False, broadcast_from_rank0=broadcast_from_rank0)
    set_model_state_dict(model, state, options=options)
    retie_parameters(model, tied)


def _give_memory(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Weights without memory beside buffers that have it: torch 2.6 loads only what is on one device."""
    own = model.state_dict()
    devices = {tensor.device for tensor in own.values()} - {META}
    if len(devices) == 1:
        for name in [name for name, tensor in own.items() if tensor.is_meta and name in state]:
            set_module_tensor_to_device(model, name, next(iter(devices)), state[name])


def _compare(model: set[str], stored: set[str], tied: list[list[str]], strict: bool) -> None:
    have = stored | {name for group in tied if stored & set(group) for name in group}
    found = {"the checkpoint lacks": sorted(model - have), "the model has no": sorted(stored - model)}
    texts = [f"{text} {', '.join(names)}" for text, names in found.items() if names]
    if texts and strict:
        raise CheckpointError("; ".join(texts))
    for text in texts:
        logger.warning("%s: left as they are", text)


def checkpoint_files(path: Path) -> list[Path]:
    """The files of a checkpoint: the one that it is, those of its index, or what a folder has of both."""
    if path.is_file() and path.suffix != ".json":
        return [path]
    if path.is_dir():
        if whole := [path / name for name in WHOLE if (path / name).is_file()]:
            return whole[:1]
        indices = sorted(path.glob("*.index.json"))
        if len(indices) != 1:
            raise CheckpointError(
                f"{path} must have one of {', '.join(WHOLE)}, or one *.index.json; it has {len(indices)}"
            )
        path = indices[0]
    if not path.is_file():
        raise CheckpointError(f"{path} is neither a file with weights, nor an index, nor a folder with one of them")
    index = json.loads(path.read_text())
    return [path.parent / name for name in sorted(set(index.get("weight_map", index).values()))]


def tensor_names(file: Path) -> list[str]:
    from safetensors import safe_open

    if file.suffix != ".safetensors":
        return list(_torch_file(file))
    with safe_open(file, framework="pt") as opened:
        return list(opened.keys())


def read_tensors(file: Path) -> Iterator[tuple[str, Tensor]]:
    """One after the other, each read when it is asked for."""
    from safetensors import safe_open

    if file.suffix != ".safetensors":
        yield from _torch_file(file).items()
        return
    with safe_open(file, framework="pt") as opened:
        form = (opened.metadata() or {}).get("format", "pt")
        if form != "pt":
            raise CheckpointError(f"{file} was saved in the format {form!r}, and tensors of torch are 'pt'")
        for name in list(opened.keys()):
            yield name, opened.get_tensor(name)


def _torch_file(file: Path) -> dict[str, Any]:
    # Only tensors and plain containers: a pickle could run code.
    state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    return state


def load_state_dict(checkpoint_file: Folder, device_map: Mapping[str, Place] | None = None) -> dict[str, Tensor]:
    """The tensors of one file, each on the device that the map gives it; what goes to the disk comes to the CPU."""
    state = dict(read_tensors(Path(os.fspath(checkpoint_file))))
    places = {name: place_of(name, device_map or {}) for name in state}
    return {
        name: tensor if (place := places[name]) in (None, "disk") else tensor.to(as_device(place))
        for name, tensor in state.items()
    }


def load_offloaded_weights(model: nn.Module, index: Mapping[str, Entry] | None, offload_folder: Folder) -> None:
    """Brings all weights back from the folder into memory."""
    for name, entry in (index or {}).items():
        weight = load_offloaded_weight(Path(offload_folder) / f"{name}.dat", entry)
        set_module_tensor_to_device(model, name, "cpu", weight)


def get_state_dict_offloaded_model(model: nn.Module) -> dict[str, Tensor]:
    """The whole state dict on the CPU, of a model whose weights are elsewhere while it does not run."""
    state: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        with align_module_device(module, "cpu" if has_offloaded_params(module) else None):
            own = {f"{name}.{key}" if name else key: value for key, value in module.state_dict().items()}
            state |= {key: value.detach().to("cpu") for key, value in own.items() if not value.is_meta}
    if missing := sorted(set(model.state_dict()) - set(state)):
        raise CheckpointError(f"these tensors have no value that could be saved: {', '.join(missing)}")
    return {name: state[name] for name in model.state_dict()}


def get_state_dict_from_offload(
    module: nn.Module, module_name: str, state_dict: dict[str, Any], device_to_put_offload: Place | None = "cpu"
) -> dict[str, Any]:
    """The state dict with the values of this module's weights, whose names begin as `module_name` does."""
    root = module_name.rpartition(".")[0]
    with align_module_device(module, device_to_put_offload if has_offloaded_params(module) else None):
        own = {f"{root}.{key}": value for key, value in module.state_dict().items()}
        return state_dict | {key: value for key, value in own.items() if key in state_dict}
