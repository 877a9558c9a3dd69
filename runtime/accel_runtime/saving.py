"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch


def save_atomically(value: Any, path: Path) -> None:
    """`torch.save` of which a kill leaves the old file or the new one."""
    with replaced(path) as beside, beside.open("wb") as file:
        torch.save(value, file)


def save_tensors(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """The tensors in the safetensors format, likewise."""
    from safetensors.torch import save_file

    with replaced(path) as beside:
        held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(held, beside, metadata={"format": "pt"})


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A path beside the target to write to; it takes the target's place when the body ends well."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    beside = Path(name)
    try:
        yield beside
        with beside.open("rb+") as file:
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
