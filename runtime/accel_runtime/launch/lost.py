"""Telling errors that follow from another rank's end from those that are a rank's own."""

from __future__ import annotations

# How torch words a connection that another rank has closed, or a collective to which one did not come.
_MARKS = ("gloo/transport", "NCCL", "DistBackendError", "DistNetworkError", "DistStoreError")
_PATIENCE = ("timed out", "timeout")


def lost_another(message: str) -> bool:
    """Whether the error says that another rank is gone, or did not come."""
    return any(mark in message for mark in _MARKS)


def waited_in_vain(message: str) -> bool:
    return lost_another(message) and any(word in message.lower() for word in _PATIENCE)
