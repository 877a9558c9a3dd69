"""A model's weights in safetensors files, in as many as their size asks for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from accel_runtime.errors import ConfigError
from accel_runtime.saving import replaced, save_atomically, save_tensors

_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def save_weights(state: dict[str, Any], directory: Path, max_shard_size: str | int, safe: bool) -> list[Path]:
    """Writes the state whole or in shards with an index; files of an earlier, larger save are removed."""
    stem, suffix = ("model", "safetensors") if safe else ("pytorch_model", "bin")
    shards = _shards(_without_aliases(state) if safe else state, size_in_bytes(max_shard_size, "max_shard_size"))
    directory.mkdir(parents=True, exist_ok=True)
    names = [f"{stem}.{suffix}"]
    if len(shards) > 1:
        names = [f"{stem}-{number:05d}-of-{len(shards):05d}.{suffix}" for number in range(1, len(shards) + 1)]
    for name, shard in zip(names, shards):
        _write(shard, directory / name, safe)
    written = [directory / name for name in names]
    if len(shards) > 1:
        written.append(_write_index(shards, names, directory / f"{stem}.{suffix}.index.json"))
    _remove_stale(directory, stem, suffix, written)
    return written


def _write(shard: dict[str, Any], path: Path, safe: bool) -> None:
    (save_tensors if safe else save_atomically)(shard, path)


def _write_index(shards: list[dict[str, Any]], names: list[str], path: Path) -> Path:
    places = {key: name for shard, name in zip(shards, names) for key in shard}
    size = sum(_size(value) for shard in shards for value in shard.values())
    with replaced(path) as beside:
        beside.write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": places}, indent=2) + "\n")
    return path


def _remove_stale(directory: Path, stem: str, suffix: str, written: list[Path]) -> None:
    ours = re.compile(rf"{stem}(-\d{{5}}-of-\d{{5}})?\.{suffix}(\.index\.json)?")
    for path in directory.iterdir():
        if path not in written and ours.fullmatch(path.name):
            path.unlink()


def _shards(state: dict[str, Any], limit: int) -> list[dict[str, Any]]:
    shards: list[dict[str, Any]] = [{}]
    filled = 0
    for name, value in state.items():
        size = _size(value)
        if shards[-1] and filled + size > limit:
            shards.append({})
            filled = 0
        shards[-1][name] = value
        filled += size
    return shards


def _without_aliases(state: dict[str, Any]) -> dict[str, Tensor]:
    """Tied weights once, under their first name: the format has no notion of sharing."""
    seen: set[tuple[Any, ...]] = set()
    kept: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor):
            continue
        # By storage and not by address: tensors of XLA have none.
        storage = (tensor.untyped_storage()._cdata, tensor.storage_offset())
        place = (storage, tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if tensor.numel() and place in seen:
            continue
        seen.add(place)
        kept[name] = tensor
    return kept


def _size(value: Any) -> int:
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0


def size_in_bytes(size: str | int | float, setting: str) -> int:
    """Bytes of "5GB", "1MiB" or a number; as elsewhere, "8Gb" with a small b counts bits."""
    if not isinstance(size, str):
        return int(size)
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]I?B)", size.strip().upper())
    if not found:
        raise ConfigError(f"{setting}={size!r} is not a size; write it as '5GB', '200MB' or a number of bytes")
    count = int(float(found[1]) * _UNITS[found[2]])
    return count // 8 if size.strip().endswith("b") and "I" not in found[2] else count
