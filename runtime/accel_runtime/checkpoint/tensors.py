"""Tensors in a safetensors file, written and digested in one pass; reading is the library's own."""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from accel_runtime.errors import CheckpointError

BEHIND = 1 << 28  # bytes that may wait for their digest; those of a device are copies, and take memory
SMALL = 1 << 16  # bytes; smaller tensors are put together, larger ones are not copied
NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
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
    return _write(path, iter([memoryview(text.encode())]))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors in memory of their own: the library maps the file, and what is mapped changes with the disk."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return {name: tensor.clone() for name, tensor in load_file(path).items()}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); it is damaged, or no safetensors file") from error


def tensor_sizes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of a file's tensors, without reading them."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 no mapping
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); it is damaged, or no safetensors file") from error


def digest_of(path: Path) -> Digested:
    with path.open("rb") as file:
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
    digest, size = hashlib.sha256(), 0
    # Both release the interpreter: the digest runs while the disk is waited for, and costs no time of its own.
    with ThreadPoolExecutor(1) as beside, path.open("wb", buffering=0) as file:
        pending: deque[tuple[Future[None], int]] = deque()
        behind = 0
        for piece in pieces:
            pending.append((beside.submit(digest.update, piece), len(piece)))
            behind += len(piece)
            rest = piece
            while rest:
                rest = rest[file.write(rest) :]
            size += len(piece)
            while behind > BEHIND:
                oldest, length = pending.popleft()
                oldest.result()
                behind -= length
        os.fsync(file.fileno())
    return Digested(path.name, size, digest.hexdigest())


def _pieces(path: Path, tensors: Mapping[str, Tensor]) -> Iterator[memoryview]:
    """The bytes of the file: the length of its header, the header, and the tensors in its order."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    # Larger elements first: each tensor then begins at a multiple of its element's size.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
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
    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    # An empty tensor has no bytes to look at. Any: NumPy's types do not say that arrays are buffers.
    content: Any = flat.view(torch.uint8).numpy() if flat.numel() else b""
    return memoryview(content)
