"""The Accelerator that this process made last: what names of Accelerate mean that have none at hand."""

from __future__ import annotations

import weakref
from itertools import count
from typing import Any

from accel_runtime.errors import UsageError

_latest: list[weakref.ref[Any]] = []
_all: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_numbers = count()


def remember(accelerator: Any) -> int:
    """Notes it without keeping it alive; returns the number by which it is found again."""
    _latest[:] = [weakref.ref(accelerator)]
    number = next(_numbers)
    _all[number] = accelerator
    return number


def numbered(number: int) -> Any:
    """What a pickle of an Accelerator is opened as."""
    if number not in _all:
        raise UsageError(
            "a pickle of an Accelerator was opened in a process that does not have it; make one there, or pass on what is "
            "needed, such as accelerator.device"
        )
    return _all[number]


def latest() -> Any | None:
    """The one made last, as long as somebody holds it."""
    return _latest[0]() if _latest else None


def forget() -> None:
    _latest.clear()
