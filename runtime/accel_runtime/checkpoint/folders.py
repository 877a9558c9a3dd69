"""Where checkpoints stand: their names, the folder beside in which one is written, and how it takes its place."""

from __future__ import annotations

import re
import secrets
import shutil
from pathlib import Path

from accel_runtime.checkpoint.tensors import sync_folder
from accel_runtime.errors import CheckpointError

AUTOMATIC = re.compile(r"checkpoint_(\d+)")
# Hidden names: no search for checkpoints takes them for one.
WRITING, REPLACED, REMOVED = "writing", "replaced", "removed"


def automatic_folders(parent: Path) -> list[Path]:
    """The numbered checkpoints, oldest first."""
    found = [(match, path) for path in _children(parent) if (match := AUTOMATIC.fullmatch(path.name))]
    return [path for _, path in sorted(found, key=lambda item: int(item[0][1]))]


def number_of(folder: Path) -> int:
    match = AUTOMATIC.fullmatch(folder.name)
    return int(match[1]) if match else -1


def next_automatic(parent: Path, first: int) -> Path:
    """The number after all that are there, so that a run that was started again goes on counting."""
    used = [number_of(folder) for folder in automatic_folders(parent)]
    return parent / f"checkpoint_{max([first - 1, *used]) + 1}"


def beside(target: Path, purpose: str) -> Path:
    """A fresh hidden name next to the folder, on the same disk."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.{purpose}")


def make_staging(staging: Path, target: Path, needed: int) -> None:
    """Makes the folder to write in, if the disk has room; what an interrupted save left there goes."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        settle(target)
        free = shutil.disk_usage(target.parent).free
        if free < needed:
            raise CheckpointError(
                f"{target} needs {_megabytes(needed)} and {_megabytes(free)} are free; make room, or keep fewer "
                "checkpoints with ProjectConfiguration(total_limit=...). What was there is untouched"
            )
        staging.mkdir()
    except OSError as error:
        raise CheckpointError(
            f"{target} cannot be written: {error.strerror} at {error.filename}; save to a folder that this user may "
            "write to"
        ) from error


def settle(target: Path) -> None:
    """Undoes what a kill left half done: a checkpoint that was moved aside for its successor comes back."""
    own = re.compile(rf"\.({re.escape(target.name)}|{AUTOMATIC.pattern})\.[0-9a-f]{{8}}\.(\w+)")
    for path in _children(target.parent):
        match = own.fullmatch(path.name)
        if match is None:
            continue
        home = path.with_name(match[1])
        if match[3] == REPLACED and not home.exists():
            path.rename(home)
        else:
            shutil.rmtree(path, ignore_errors=True)


def standing(target: Path) -> Path:
    """The folder, or where a kill has left it aside. Nothing is moved: another run may be at work here."""
    aside = [] if target.exists() else sorted(target.parent.glob(f".{target.name}.*.{REPLACED}"))
    return aside[-1] if aside else target


def put_in_place(staging: Path, target: Path) -> None:
    """Gives a complete checkpoint its name. A kill in between leaves the old one where `settle` finds it."""
    sync_folder(staging)
    aside = None
    if target.exists():
        aside = beside(target, REPLACED)
        target.rename(aside)
    staging.rename(target)
    sync_folder(target.parent)
    if aside is not None:
        shutil.rmtree(aside)


def prune(parent: Path, limit: int) -> None:
    """Removes the oldest numbered checkpoints beyond the limit."""
    for folder in automatic_folders(parent)[:-limit]:
        remove(folder)


def remove(folder: Path) -> None:
    """Under another name first: half a checkpoint must not stand under its own."""
    doomed = beside(folder, REMOVED)
    folder.rename(doomed)
    shutil.rmtree(doomed)


def _children(parent: Path) -> list[Path]:
    return sorted(path for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else []


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
