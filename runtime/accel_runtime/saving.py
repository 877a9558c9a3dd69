"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch


def save_atomically(value: Any, path: Path) -> None:
    """`torch.save` beside the path, then a rename onto it: a kill in between leaves the old file."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    beside = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save(value, file)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes private files; others expect the permissions that a plain open gives.
        beside.chmod(0o666 & ~_umask())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
