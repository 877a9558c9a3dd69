"""The Accelerator that this process made last: what names of Accelerate mean that have none at hand."""

from __future__ import annotations

import weakref
from typing import Any

_latest: list[weakref.ref[Any]] = []


def remember(accelerator: Any) -> None:
    """Notes it without keeping it alive."""
    _latest[:] = [weakref.ref(accelerator)]


def latest() -> Any | None:
    """The one made last, as long as somebody holds it."""
    return _latest[0]() if _latest else None


def forget() -> None:
    _latest.clear()
