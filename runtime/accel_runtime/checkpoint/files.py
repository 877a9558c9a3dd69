"""Files of a checkpoint, which anybody may have written: regular ones, inside the folder, of a bounded size."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path, PurePosixPath

from accel_runtime.errors import CheckpointError

PLAIN = re.compile(r"[a-z0-9_]+\.[a-z]+")  # as save_state names files: three for each process
TEXT_LIMIT = 1 << 27  # bytes of one JSON file; in memory it takes up to some 25 times as much


def inside(folder: Path, name: str) -> Path:
    """The path of a regular file that is in the folder by itself and not by a link."""
    path = folder / check_name(name)
    try:
        kind = path.lstat().st_mode
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(kind) or path.resolve() != folder.resolve() / name:
        raise CheckpointError(
            f"{path} is not a regular file of the checkpoint's own; links and devices are not followed"
        )
    return path


def check_name(name: str) -> str:
    """Refuses a name that leads out of its folder, or that another system could read so."""
    if PLAIN.fullmatch(name):
        return name
    parts = PurePosixPath(name).parts
    if (
        not name
        or "\0" in name
        or name != "/".join(parts)
        or ".." in parts
        or Path(name).is_absolute()
        or Path(name).drive
    ):
        raise CheckpointError(f"{name[:100]!r} is not the name of a file in a checkpoint")
    return name


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """The file for reading; never a device, a pipe or a link, which could be endless or anywhere."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise CheckpointError(f"{path} is not a regular file")
        yield file


def read_text(path: Path) -> str:
    """The content of a JSON file, which is in UTF-8 and not what its first bytes may claim."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > TEXT_LIMIT:
            raise CheckpointError(f"{path} has {size} bytes, and text in a checkpoint has at most {TEXT_LIMIT}")
        return file.read(TEXT_LIMIT).decode()
