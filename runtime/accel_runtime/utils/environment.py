"""Variables of the environment, as Accelerate's functions read and change them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def patch_environment(**values: Any) -> Iterator[None]:
    """Has these variables, in capitals, for a while; what was there before comes back."""
    with _exchanged(os.environ, {name.upper(): str(value) for name, value in values.items()}, ()):
        yield


@contextmanager
def clear_environment() -> Iterator[None]:
    """Has an empty environment for a while."""
    with _exchanged(os.environ, {}, tuple(dict(os.environ))):
        yield


def str_to_bool(value: str) -> int:
    """1 for y, yes, t, true, on, 1; 0 for their opposites."""
    word = value.lower()
    if word in ("y", "yes", "t", "true", "on", "1"):
        return 1
    if word in ("n", "no", "f", "false", "off", "0"):
        return 0
    raise ValueError(f"{value!r} is neither true nor false")


def parse_flag_from_env(key: str, default: bool = False) -> bool:
    return bool(str_to_bool(_read(os.environ, key, str(default))))


def parse_choice_from_env(key: str, default: str = "no") -> str:
    return _read(os.environ, key, str(default))


def _read(environ: Mapping[str, str], key: str, default: str) -> str:
    return environ.get(key, default)


@contextmanager
def _exchanged(environ: MutableMapping[str, str], added: Mapping[str, str], removed: tuple[str, ...]) -> Iterator[None]:
    before = {name: environ.get(name) for name in (*added, *removed)}
    for name in removed:
        environ.pop(name, None)
    environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                environ.pop(name, None)
            else:
                environ[name] = value
