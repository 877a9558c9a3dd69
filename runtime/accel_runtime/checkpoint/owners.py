"""Who a hidden folder beside the checkpoints belongs to: its name says it, so that nobody else takes it for debris."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import secrets
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

WRITING, REPLACED, REMOVED = "writing", "replaced", "removed"
# Hidden names: no search for checkpoints takes them for one.
HIDDEN = re.compile(
    r"\.(?P<home>.+)\.(?P<host>[0-9a-f]{8})-(?P<pid>\d{1,10})-(?P<start>\d{1,20})-[0-9a-f]{8}"
    rf"\.(?P<purpose>{WRITING}|{REPLACED}|{REMOVED})",
    re.DOTALL,
)
PROCESSES = Path("/proc")
UNKNOWN = 0  # the start of a process that is there, and of which no more is to be known
DAY = 86_400.0  # seconds after which the folder of a process that cannot be asked is taken for abandoned


@dataclass(frozen=True, slots=True)
class Hidden:
    """A hidden folder: for which checkpoint, to what purpose, and by which process."""

    path: Path
    home: Path
    purpose: str
    host: str
    pid: int
    start: int

    @property
    def abandoned(self) -> bool:
        """Whether its process has ended. On another machine or in another container that shows only after a day."""
        if self.host == _host():
            return _start_of(self.pid) not in (self.start, UNKNOWN)
        try:
            newest = max(path.lstat().st_mtime for path in (self.path, *self.path.iterdir()))
        except OSError:
            return False
        return time.time() - newest > DAY


def hidden_beside(target: Path, purpose: str) -> Path:
    """A fresh hidden name of this process next to the folder, on the same disk."""
    pid = os.getpid()
    owner = f"{_host()}-{pid}-{_start_of(pid) or UNKNOWN}-{secrets.token_hex(4)}"
    return target.with_name(f".{target.name}.{owner}.{purpose}")


def hidden_in(parent: Path) -> list[Hidden]:
    """All hidden folders of checkpoints in this one."""
    found = [(path, HIDDEN.fullmatch(path.name)) for path in (parent.iterdir() if parent.is_dir() else ())]
    return [
        Hidden(
            path, path.with_name(match["home"]), match["purpose"], match["host"], int(match["pid"]), int(match["start"])
        )
        for path, match in sorted(found)
        if match is not None and path.is_dir() and not path.is_symlink()
    ]


@functools.cache
def _host() -> str:
    """This machine since it was started, and in a container this container: there process ids mean the same."""
    boot, container = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    seen = [socket.gethostname()]
    with suppress(OSError):
        seen += [boot.read_text(), str(container.readlink())]
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:8]


def _start_of(pid: int) -> int | None:
    """When a process began, in the ticks of its machine; None when it has ended."""
    try:
        # After the name, which may hold anything: its state first, and the start as the twentieth.
        state, *fields = (PROCESSES / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if state in "ZX" else int(fields[18])
    except ProcessLookupError:
        return None
    except OSError:
        pass  # not Linux, or a system that hides the processes of other users
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return UNKNOWN
