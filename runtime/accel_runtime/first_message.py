"""The message with which every collective begins: of one size, so that processes that mean different ones learn it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

# Two whole numbers: what is called with which tensors, and how many bytes follow; and a number of the caller's.
HEADER = 2 * 8
# Bytes of one process's message, which has room for small tensors beside the header; fewer where many processes meet,
# because each of them receives the messages of all.
LARGEST = 4096
OF_ALL = 64 * 1024
# Of a length, this many values fit beside a digest of 32 bits.
_LENGTHS = 2**31


@dataclass(frozen=True, slots=True)
class Heard:
    """What all processes said, in the order of ranks; `small` are their bytes where these fitted in, else None."""

    digests: list[int]
    numbers: list[int]
    small: Tensor | None


def message_size(processes: int) -> int:
    return min(LARGEST, max(HEADER, OF_ALL // processes))


def digest_of(meant: str, length: int) -> int:
    """Equal where the same collective is called with tensors that fit together, and as many bytes follow."""
    return zlib.crc32(meant.encode()) + (length % _LENGTHS << 32)


def first_message(digest: int, number: int, mine: Tensor, size: int) -> Tensor:
    """The header, and `mine` where there is room for it."""
    message = mine.new_zeros(size)
    message[:HEADER] = torch.tensor([digest, number], device=mine.device).view(torch.uint8)
    if _fits(mine, size):
        message[HEADER : HEADER + mine.numel()] = mine
    return message


def heard(everyone: Tensor, mine: Tensor) -> Heard:
    """From the messages of all processes, one row each."""
    digests, numbers = everyone[:, :HEADER].contiguous().view(torch.int64).t().tolist()
    small = everyone[:, HEADER : HEADER + mine.numel()] if _fits(mine, everyone.shape[1]) else None
    return Heard(digests, numbers, small)


def is_agreed(said: Heard, meant: str, length_for: Callable[[int], int]) -> bool:
    """Whether all mean the same, and each sends as many bytes as its number says."""
    said_by_any = set(zip(said.digests, said.numbers))
    return all(digest == digest_of(meant, length_for(number)) for digest, number in said_by_any)


def _fits(mine: Tensor, size: int) -> bool:
    return mine.numel() <= size - HEADER
