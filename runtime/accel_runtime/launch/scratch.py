"""The launcher's folder for what its ranks leave, and the folders of launchers that were killed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

PREFIX = "accel-launch-"
LOCK = "lock"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that goes with this launcher; if the launcher is killed, the next one removes it."""
    remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, Path(name, LOCK).open("w") as lock:
        _locked(lock)
        yield Path(name)


def remove_abandoned(parent: Path) -> None:
    """Removes the folders of launchers that are gone: nobody holds their lock."""
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            with (folder / LOCK).open() as lock:
                if _locked(lock):
                    shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # another user's, or just being made or removed


def _locked(lock: IO[str]) -> bool:
    """Takes the lock, which the system gives back when this process ends; no where another process has it."""
    if os.name == "nt":  # has no such locks: nothing is removed there
        return False
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
