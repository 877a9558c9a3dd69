"""Copies of the project folder to run in: what the scripts write stays there, and goes when the proof is done."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from accel_migrate.errors import MigrateError

LARGEST_COPY = 2 * 2**30  # bytes
LEFT_OUT = frozenset(
    {
        *(".git", ".hg", ".svn", ".venv", "venv", "node_modules", "wandb", "mlruns"),
        *("__pycache__", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox"),
    }
)


@dataclass(frozen=True, slots=True)
class Project:
    """The folder that is copied, and what of it is only linked to because the scripts only read it."""

    root: Path
    data: tuple[Path, ...] = ()

    def copy(self, target: Path, rewrites: Mapping[Path, bytes]) -> None:
        """The whole folder anew, with these files in the place of their originals."""
        for folder, files in _walk(self.root, self.data):
            copied = target / folder.relative_to(self.root)
            copied.mkdir(parents=True, exist_ok=True)  # an empty one too: scripts write into `logs/`
            for source in files:
                shutil.copy2(source, copied / source.name)
        for source in self.data:
            if source.is_relative_to(self.root):
                linked = target / source.relative_to(self.root)
                linked.parent.mkdir(parents=True, exist_ok=True)
                linked.symlink_to(source, target_is_directory=source.is_dir())
        for source, content in rewrites.items():
            (target / source.relative_to(self.root)).write_bytes(content)

    def check_size(self) -> None:
        """Refuse to copy what would fill the disk."""
        sizes = {file: file.stat().st_size for file in self._files()}
        total = sum(sizes.values())
        if total > LARGEST_COPY:
            largest = max(sizes, key=lambda file: sizes[file])
            raise MigrateError(
                f"{self.root} holds {total / 2**30:.1f} GiB, and --verify copies at most {LARGEST_COPY / 2**30:g}; "
                f"name what the script only reads, such as --data {largest.relative_to(self.root)}"
            )

    def data_state(self) -> dict[Path, tuple[int, int]]:
        """What would be other if a script had written through a link."""
        every = [file for place in self.data for file in ([place] if place.is_file() else _below(place, ()))]
        return {file: (status.st_size, status.st_mtime_ns) for file in every if (status := file.stat())}

    def _files(self) -> Iterator[Path]:
        return _below(self.root, self.data)


def _below(folder: Path, without: Sequence[Path]) -> Iterator[Path]:
    return (file for _, files in _walk(folder, without) for file in files)


def _walk(folder: Path, without: Sequence[Path]) -> Iterator[tuple[Path, list[Path]]]:
    """Each folder that is copied, with its files."""
    # A link of the user's own is followed: in the copy it would lead a script's writes out again.
    for parent, folders, files in os.walk(folder, followlinks=True):
        here = Path(parent)
        folders[:] = sorted(name for name in folders if _is_copied(here / name, without) and not _loops(here / name))
        inside = (here / name for name in sorted(files))
        yield here, [file for file in inside if file not in without and file.is_file()]


def _is_copied(folder: Path, without: Sequence[Path]) -> bool:
    environment = (folder / "pyvenv.cfg").exists() or (folder / "conda-meta").exists()
    return folder.name not in LEFT_OUT and folder not in without and not environment


def _loops(folder: Path) -> bool:
    return folder.is_symlink() and folder.parent.is_relative_to(folder.resolve())
