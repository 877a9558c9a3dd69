"""Tensors of any shape and type as one piece of memory, and back."""

from __future__ import annotations

import torch
from torch import Tensor


def signature(paths: list[str], tensors: list[Tensor], rows: int | None = None) -> str:
    """What must be equal on all processes for tensors to be exchanged; those of `rows` rows may differ in these."""
    return ", ".join(_described(path, tensor, rows) for path, tensor in zip(paths, tensors))


def has_rows(tensor: Tensor, rows: int | None) -> bool:
    """Whether it has one row for each of `rows` samples."""
    return tensor.dim() > 0 and len(tensor) == rows


def packed(tensors: list[Tensor], device: torch.device) -> Tensor:
    """All tensors one after another, as bytes."""
    pieces = [_as_bytes(tensor.detach().to(device).reshape(-1)) for tensor in tensors]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces or [torch.empty(0, dtype=torch.uint8, device=device)])


def unpacked(everyone: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    """From one row of bytes for each process: tensors like `tensors`, joined in their first dimension."""
    pieces = everyone.split_with_sizes([tensor.numel() * tensor.element_size() for tensor in tensors], dim=1)
    return [
        # The copy gives each piece memory of its own, aligned for its type.
        piece.contiguous().view(-1).view(tensor.dtype).view(_joined_shape(tensor, len(everyone)))
        for piece, tensor in zip(pieces, tensors)
    ]


def places_by_dtype(tensors: list[Tensor]) -> dict[torch.dtype, list[int]]:
    """Where the tensors of each type are: arithmetic, unlike copying, has to know the type."""
    places: dict[torch.dtype, list[int]] = {}
    for place, tensor in enumerate(tensors):
        places.setdefault(tensor.dtype, []).append(place)
    return places


def padded(tensor: Tensor, length: int, dim: int = 0, value: float = 0, first: bool = False) -> Tensor:
    """The tensor with `value` in front or behind until it is as long in `dim` as asked."""
    missing = length - tensor.shape[dim]
    if missing == 0:
        return tensor
    shape = list(tensor.shape)
    shape[dim] = missing
    filler = tensor.new_full(shape, value)
    return torch.cat([filler, tensor] if first else [tensor, filler], dim=dim)


def _as_bytes(flat: Tensor) -> Tensor:
    """What has a stride is copied; is_contiguous() would call it contiguous where there is one element, or none."""
    whole = flat if flat.stride(0) == 1 else flat.clone(memory_format=torch.contiguous_format)
    return whole.resolve_conj().view(torch.uint8)


def _described(path: str, tensor: Tensor, rows: int | None) -> str:
    shape = [str(length) for length in tensor.shape]
    if has_rows(tensor, rows):
        shape[0] = "samples"
    return f"{path} [{', '.join(shape)}] {str(tensor.dtype).removeprefix('torch.')}".lstrip()


def _joined_shape(tensor: Tensor, size: int) -> tuple[int, ...]:
    return (size * (len(tensor) if tensor.dim() else 1), *tensor.shape[1:])
