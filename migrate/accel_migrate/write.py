"""Writes files so that a crash, a full disk or a kill leaves the old file or the new one, never half of either."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from accel_migrate.errors import MigrateError


class WriteError(MigrateError):
    """A file that was not written; on disk everything is as it was."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


@dataclass(frozen=True, slots=True)
class Rewrite:
    """New bytes for a file that is expected to still hold the old ones."""

    path: Path
    before: bytes = field(repr=False)
    after: bytes = field(repr=False)


def write_together(rewrites: Sequence[Rewrite]) -> None:
    """Replace every file or none: all are staged beside their targets and checked before the first one moves."""
    with ExitStack() as stack:
        staged = [(rewrite, stack.enter_context(_staged(rewrite.path, rewrite.after))) for rewrite in rewrites]
        for rewrite in rewrites:
            _check_untouched(rewrite)
        done: list[Rewrite] = []
        for rewrite, temporary in staged:
            try:
                _check_untouched(rewrite)
                _move(temporary, rewrite.path)
            except (OSError, WriteError) as error:
                for earlier in done:
                    write_whole(earlier.path, earlier.before)
                if isinstance(error, WriteError):
                    raise
                raise _refusal(rewrite.path, error) from error
            done.append(rewrite)


def write_whole(path: Path, data: bytes) -> None:
    """Create or replace one file atomically."""
    with _staged(path, data) as temporary:
        try:
            _move(temporary, path)
        except OSError as error:
            raise _refusal(path, error) from error


@contextmanager
def _staged(path: Path, data: bytes) -> Iterator[Path]:
    """The bytes, safe on the disk, in a hidden file beside the target that is gone afterwards whatever happens."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=".", suffix=".accel-migrate", dir=path.parent)
    except OSError as error:
        raise _refusal(path, error) from error
    temporary = Path(name)
    try:
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _take_over_owner_and_mode(path, temporary)
        except OSError as error:
            raise _refusal(path, error) from error
        yield temporary
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def _take_over_owner_and_mode(path: Path, temporary: Path) -> None:
    try:
        old = path.stat()
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        return
    if hasattr(os, "chown"):
        with suppress(PermissionError):  # only root may give a file away; the mode is what matters then
            os.chown(temporary, old.st_uid, old.st_gid)
    temporary.chmod(stat.S_IMODE(old.st_mode))


def _check_untouched(rewrite: Rewrite) -> None:
    """Refuse when somebody else wrote the file, or turned it into a link, since it was read."""
    try:
        if rewrite.path.is_symlink():
            raise WriteError(rewrite.path, "became a symbolic link since it was read; nothing was written")
        untouched = rewrite.path.read_bytes() == rewrite.before
    except OSError as error:
        raise _refusal(rewrite.path, error) from error
    if not untouched:
        raise WriteError(rewrite.path, "changed on disk since it was read; nothing was written, run again")


def _move(temporary: Path, path: Path) -> None:
    temporary.replace(path)
    # The new name is durable only when the folder is; some file systems cannot sync one.
    with suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _refusal(path: Path, error: OSError) -> WriteError:
    return WriteError(path, f"cannot be written ({error.strerror or error}); it is as it was")
