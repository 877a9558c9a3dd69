"""Tensors in a safetensors file, written and digested in one pass; reading is the library's own."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from accel_runtime.checkpoint.files import TEXT_LIMIT, opened
from accel_runtime.checkpoint.threads import DigestBeside
from accel_runtime.errors import CheckpointError

SMALL = 1 << 16  # bytes; smaller tensors are put together, larger ones are not copied
NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
if hasattr(torch, "float8_e8m0fnu"):  # from torch 2.7 on
    NAMES[torch.float8_e8m0fnu] = "F8_E8M0"


@dataclass(frozen=True, slots=True)
class Digested:
    """A file as it was written."""

    name: str
    size: int
    sha256: str


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> Digested:
    """Writes the file through to the disk. The library's own writer would hold a second copy of every tensor."""
    return _write(path, _pieces(path, tensors))


def write_text(path: Path, text: str) -> Digested:
    if len(text) > TEXT_LIMIT:
        raise CheckpointError(
            f"{path.name} would have {len(text)} bytes of text, and {TEXT_LIMIT} is what a checkpoint may have of it; put "
            "long lists of numbers into a tensor"
        )
    return _write(path, iter([memoryview(text.encode())]))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors in memory of their own: the library maps the file, and what is mapped changes with the disk."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if (size := path.stat().st_size) > (memory := _memory()):
        raise CheckpointError(
            f"{path} has {size} bytes, which is more than the {memory} bytes of memory of this machine"
        )
    try:
        return {name: tensor.clone() for name, tensor in load_file(path).items()}
    except (SafetensorError, OSError, KeyError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); it is damaged, or not a safetensors file") from error


def tensor_sizes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of a file's tensors, without reading them."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 no mapping
    except (SafetensorError, OSError, KeyError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); it is damaged, or not a safetensors file") from error


def _memory() -> int:
    """Of this machine, in bytes; without a limit where the system does not tell."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 1 << 63


def digest_of(path: Path) -> Digested:
    with opened(path) as file:
        digest = hashlib.file_digest(file, "sha256")
        return Digested(path.name, file.tell(), digest.hexdigest())


def sync_folder(folder: Path) -> None:
    """Makes the names in the folder survive a loss of power."""
    if os.name == "nt":  # cannot open folders
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write(path: Path, pieces: Iterator[memoryview]) -> Digested:
    try:
        return _write_through(path, pieces)
    except OSError as error:
        raise CheckpointError(f"{path} could not be written: {error.strerror}; what was there is untouched") from error


def _write_through(path: Path, pieces: Iterator[memoryview]) -> Digested:
    size = 0
    with DigestBeside() as digest, path.open("wb", buffering=0) as file:
        for piece in pieces:
            digest.update(piece)
            rest = piece
            while rest:
                rest = rest[file.write(rest) :]
            size += len(piece)
        os.fsync(file.fileno())
    return Digested(path.name, size, digest.hexdigest())


def _pieces(path: Path, tensors: Mapping[str, Tensor]) -> Iterator[memoryview]:
    """The bytes of the file: the length of its header, the header, and the tensors in its order."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    # Larger elements first: each tensor then begins at a multiple of its element's size.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    if "__metadata__" in tensors:
        raise CheckpointError(
            f"{path.name} cannot hold a tensor named __metadata__: safetensors keeps that name; rename it"
        )
    for name, tensor in ordered:
        if tensor.dtype not in NAMES or tensor.layout is not torch.strided:
            raise CheckpointError(f"{path.name} cannot hold {name}: a {tensor.layout} tensor of {tensor.dtype}")
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    gathered = bytearray(len(text).to_bytes(8, "little") + text)
    for _, tensor in ordered:
        content = _bytes(tensor)
        if len(content) <= SMALL:
            gathered += content
            continue
        yield memoryview(gathered)
        gathered = bytearray()
        yield content
    yield memoryview(gathered)


def _bytes(tensor: Tensor) -> memoryview:
    flat = tensor.detach().to("cpu").resolve_conj().contiguous().reshape(-1)
    # An empty tensor has no bytes to look at. Any: NumPy's types do not say that arrays are buffers.
    content: Any = flat.view(torch.uint8).numpy() if flat.numel() else b""
    return memoryview(content)
