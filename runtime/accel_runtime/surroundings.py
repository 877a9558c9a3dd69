"""Environment variables changed for the length of a block."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def patch_environment(**variables: Any) -> Iterator[None]:
    """Sets variables, named in any case, and puts the old values back.

    >>> with patch_environment(omp_num_threads=1): ...
    """
    changed = {name.upper(): str(value) for name, value in variables.items()}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def clear_environment() -> Iterator[None]:
    """Takes all variables away, and puts them back."""
    before = dict(os.environ)
    os.environ.clear()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
