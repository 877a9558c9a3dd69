"""Where Python may look for a module that a file of the project imports, in its order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def import_roots(importer: Path) -> Iterator[Path]:
    """The folders that an absolute import may start from: the importer's own, then those around it, each with its `src`."""
    for folder in importer.parents:
        yield folder
        yield folder / "src"
