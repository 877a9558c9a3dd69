"""Where checkpoints are: their names, the hidden folder in which one is written, and how it takes its place."""

from __future__ import annotations

import errno
import os
import re
import shutil
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath

from accel_runtime.checkpoint.manifest import NAME, read_manifest
from accel_runtime.checkpoint.owners import REMOVED, REPLACED, WRITING, hidden_beside, hidden_in
from accel_runtime.checkpoint.tensors import sync_folder
from accel_runtime.errors import CheckpointError

AUTOMATIC = re.compile(r"checkpoint_(\d+)")
OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
# Between the choice of a number and the folder that shows it to all others.
_choosing = threading.Lock()


def automatic_folders(parent: Path) -> list[Path]:
    """The numbered checkpoints, oldest first."""
    children = sorted(path for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else []
    found = [(match, path) for path in children if (match := AUTOMATIC.fullmatch(path.name))]
    return [path for _, path in sorted(found, key=lambda item: int(item[0][1]))]


def number_of(folder: Path) -> int:
    match = AUTOMATIC.fullmatch(folder.name)
    return int(match[1]) if match else -1


def next_automatic(parent: Path, first: int) -> Path:
    """The number after all that are there or being written, so that a run that was started again goes on counting."""
    used = [number_of(folder) for folder in automatic_folders(parent)]
    used += [number_of(hidden.home) for hidden in hidden_in(parent) if hidden.purpose == WRITING]
    return parent / f"checkpoint_{max([first - 1, *used]) + 1}"


def named(folder: str | os.PathLike[str]) -> Path:
    """The folder that the script names, where a link leads; a refusal when no checkpoint can be there."""
    path = Path(os.path.realpath(folder))
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise CheckpointError(f"{str(path)!r} is not a name in UTF-8, which safetensors asks for; rename it") from None
    if path.exists() and not path.is_dir():
        raise CheckpointError(f"{path} is a file and no folder; it was left as it is, save to another name")
    if path in (here := Path(os.path.realpath(Path.cwd())), *here.parents):
        raise CheckpointError(
            f"{path} is the folder that this program works in, and a checkpoint takes the place of a whole folder; save "
            f"to one of its own, such as {path / 'checkpoint'}"
        )
    return path


def make_staging(choose: Callable[[], Path], needed: int) -> tuple[Path, Path]:
    """The target, and beside it a new folder to write in, if the disk has room; what an ended process left goes."""
    with _choosing:
        target = choose()
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            settle(target.parent)
            free = shutil.disk_usage(target.parent).free
            if free < needed:
                raise CheckpointError(
                    f"{target} needs {_megabytes(needed)} and {_megabytes(free)} are free; make room, or keep fewer "
                    "checkpoints with ProjectConfiguration(total_limit=...). What was there is untouched"
                )
            staging = hidden_beside(target, WRITING)
            staging.mkdir()
        except OSError as error:
            raise CheckpointError(
                f"{target} cannot be written: {error.strerror} at {error.filename}; save to a folder that this user "
                "may write to"
            ) from error
    return target, staging


def settle(parent: Path) -> None:
    """Undoes what a kill left half done: a checkpoint that was moved aside for its successor comes back."""
    for hidden in hidden_in(parent):
        # Another process may be settling too.
        with suppress(OSError):
            if not hidden.abandoned:
                continue
            if hidden.purpose != REPLACED:
                shutil.rmtree(hidden.path, ignore_errors=True)
            elif hidden.home.exists():
                discard(hidden.path, hidden.home)
            else:
                hidden.path.rename(hidden.home)


def location_of(target: Path) -> Path:
    """The folder, or where a kill has left it aside. Nothing is moved: another run may be at work here."""
    if target.exists():
        return target
    aside = [one.path for one in hidden_in(target.parent) if one.purpose == REPLACED and one.home.name == target.name]
    return aside[-1] if aside else target


def put_in_place(staging: Path, target: Path) -> Path:
    """Gives a complete checkpoint its name. A kill in between leaves the old one where `settle` finds it."""
    _check_clashes(staging, target)
    with suppress(FileNotFoundError):
        # What only some may read stays so.
        shutil.copymode(target, staging)
    sync_folder(staging)
    asides: list[Path] = []
    while not _renamed(staging, target):
        if not target.is_dir() and target.exists():
            raise CheckpointError(f"{target} is a file and no folder; it was left as it is, save to another name")
        aside = hidden_beside(target, REPLACED)
        # Another process may be saving under this name as well; then the last one stays.
        with suppress(FileNotFoundError):
            target.rename(aside)
            asides.append(aside)
    sync_folder(target.parent)
    for aside in asides:
        discard(aside, target)
    return target


def put_in_number(staging: Path, target: Path) -> Path:
    """The same for a numbered checkpoint, which replaces nothing: the number is another one if it was taken meanwhile."""
    sync_folder(staging)
    number = number_of(target)
    while not _renamed(staging, target):
        number += 1
        target = target.with_name(f"checkpoint_{number}")
    sync_folder(target.parent)
    return target


def discard(aside: Path, home: Path) -> None:
    """Removes a replaced checkpoint: what its manifest lists. What else was in the folder goes to the new one."""
    for name in (*_listed(aside), NAME):
        with suppress(FileNotFoundError):
            (aside / name).unlink()
        for above in Path(name).parents[:-1]:
            with suppress(OSError):  # it holds more
                (aside / above).rmdir()
    # Where another process has just moved the new one, too, aside, the next `settle` goes on.
    with suppress(FileNotFoundError):
        _carry(aside, home)
    if not (left := _files(aside)):
        shutil.rmtree(aside, ignore_errors=True)
    elif (home / min(left)).exists():
        warnings.warn(
            f"{home / min(left)} was made while a checkpoint was saved there; the one that was there before is in {aside}",
            stacklevel=2,
        )


def prune(parent: Path, limit: int) -> None:
    """Removes the oldest numbered checkpoints beyond the limit; of a linked one the link."""
    ours = [folder for folder in automatic_folders(parent) if (folder / NAME).is_file()]
    for folder in ours[:-limit]:
        try:
            _remove(folder)
        except FileNotFoundError:
            continue  # another process was faster
        except OSError as error:
            warnings.warn(
                f"{folder} is beyond total_limit and stays: {error.strerror}; remove it by hand", stacklevel=2
            )


def _remove(folder: Path) -> None:
    """Under another name first: half a checkpoint must not be found under its own."""
    if folder.is_symlink():
        folder.unlink()
        return
    doomed = hidden_beside(folder, REMOVED)
    folder.rename(doomed)
    shutil.rmtree(doomed)


def _renamed(staging: Path, target: Path) -> bool:
    """Whether the name was free."""
    try:
        staging.rename(target)
    except OSError as error:
        if error.errno not in OCCUPIED:
            raise
        return False
    return True


def _check_clashes(staging: Path, target: Path) -> None:
    """Refuses to write over a file that no checkpoint has written, or where a folder of another kind is."""
    written = _files(staging)
    while (looked_at := _identity(target)) is not None:
        foreign = _files(target) - {*_listed(target), NAME}
        if (target / NAME).exists() and not _listed(target):
            foreign.add(NAME)
        clashes = (foreign & _with_folders(written)) | (written & _with_folders(foreign))
        if not clashes:
            return
        if _identity(target) == looked_at:
            raise CheckpointError(
                f"{target / min(clashes)} was not written by a checkpoint that can be read, and is left as it is; save to "
                "another folder, or remove it"
            )
        # Another process put its own there meanwhile, so files and manifest were of two checkpoints.


def _identity(folder: Path) -> tuple[int, int] | None:
    """Which folder bears a name now; None if no folder does."""
    try:
        found = folder.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _listed(folder: Path) -> list[str]:
    """What the manifest of a checkpoint lists; nothing, when it has none that can be read."""
    try:
        return read_manifest(folder).names()
    except CheckpointError:
        return []


def _files(folder: Path) -> set[str]:
    """All that is no folder, by its path below this one; links are not followed."""
    return {
        Path(above, name).relative_to(folder).as_posix()
        for above, folders, files in os.walk(folder)
        for name in (*files, *(one for one in folders if Path(above, one).is_symlink()))
    }


def _with_folders(files: set[str]) -> set[str]:
    """The files, and the folders that they are in."""
    return files | {above.as_posix() for name in files for above in PurePosixPath(name).parents[:-1]}


def _carry(aside: Path, home: Path) -> None:
    """Moves what is left in one folder to the other; whole folders where the other has none of that name."""
    for path in sorted(aside.iterdir()):
        if not (there := home / path.name).exists() and not there.is_symlink():
            path.rename(there)
        elif path.is_dir() and not path.is_symlink() and there.is_dir():
            _carry(path, there)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
