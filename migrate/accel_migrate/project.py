"""Which files belong together: those that import each other are migrated in one piece, or not at all."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from accel_migrate.discover import Found
from accel_migrate.document import document
from accel_migrate.errors import SourceError
from accel_migrate.flow.nodes import walk
from accel_migrate.limits import LARGEST_PIECE
from accel_migrate.source import concerns_torch

TEST_FOLDER = "tests"
_TESTS = re.compile(rb"^\s*(def test_\w|import (pytest|unittest)|from (pytest|unittest)|class \w+\(.*TestCase)", re.M)
MOST_NEIGHBOURS = 200  # of a named file, looked at for callers


@dataclass(frozen=True, slots=True)
class Import:
    """`import module`, or `from module import names`; `level` counts the leading dots."""

    module: str
    names: tuple[str, ...] = ()
    level: int = 0


@dataclass(frozen=True, slots=True)
class Scan:
    """What a first look at a file tells."""

    path: Path
    mentions_torch: bool
    imports: tuple[Import, ...] = ()
    is_test: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """Files that are migrated together, and the neighbours that are only read."""

    sources: tuple[Path, ...]
    siblings: tuple[Path, ...] = ()
    tests: frozenset[Path] = frozenset()  # of the neighbours: they may call what they test in ways that no run does


def scan(path: Path) -> Scan:
    """Look at a file without judging it: what cannot be read imports nothing here and fails later, as what does not parse."""
    try:
        data = path.read_bytes()
        mentions_torch = concerns_torch(data)
        # A script may run a training, and a helper store what it made, without a word about torch.
        return Scan(path, mentions_torch, tuple(_imports(document(path, data).source.tree)), _is_test(path, data))
    except SourceError:
        return Scan(path, mentions_torch=True, imports=tuple(_imports_of_lines(data)))
    except Exception:  # whatever is wrong with the file, it is told when the file's own turn comes
        return unread(path)


def _is_test(path: Path, data: bytes) -> bool:
    """Whether a file is named like a test and holds one: `test.py` and `test_net.py` evaluate in many projects."""
    named = path.name.startswith("test_") or path.stem.endswith("_test")
    return path.name == "conftest.py" or (named and _TESTS.search(data) is not None)


def unread(path: Path) -> Scan:
    """A file that tells nothing at a first look and is looked at again on its own."""
    return Scan(path, mentions_torch=True)


def _imports(tree: ast.Module) -> Iterator[Import]:
    for node in walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield Import(node.module or "", tuple(name.name for name in node.names), node.level)


def _imports_of_lines(data: bytes) -> Iterator[Import]:
    """What a file imports that does not parse, by those of its lines that do: it may call what is migrated."""
    for line in data.decode(errors="replace").splitlines():
        if line.lstrip().startswith(("import ", "from ")):
            with suppress(SyntaxError, ValueError):
                yield from _imports(ast.parse(line.strip()))


ScanAll = Callable[[Sequence[Path]], Iterable[Scan]]


def tasks(files: Sequence[Found], scan_all: ScanAll) -> list[Task]:
    """The connected pieces of the import graph around the files that mention torch, sorted by their first file.

    Tests are only read, unless they were named: they say what the code did before.
    """
    roots = {found.path: found.root if not found.named else _package_root(found.path) for found in files}
    graph = _Graph(roots, {each.path: each for each in scan_all(_with_neighbours(files))})
    tests = {found.path for found in files if not found.named and _tests(found, graph.scans[found.path])}
    torch_files = [path for path in roots if graph.scans[path].mentions_torch and path not in tests]
    pieces: dict[Path, Task] = {}
    for path in sorted(torch_files):
        if path not in pieces:
            piece = graph.connected(path)
            if piece is None:
                pieces[path] = Task((path,))
                continue
            task = Task(
                sources=tuple(sorted(each for each in piece if each in roots and each not in tests)),
                siblings=tuple(sorted(each for each in piece if each not in roots or each in tests)),
                tests=frozenset(piece & tests),
            )
            pieces.update((each, task) for each in task.sources)
    return list(dict.fromkeys(pieces.values()))


def _tests(found: Found, scanned: Scan) -> bool:
    return scanned.is_test or TEST_FOLDER in found.path.relative_to(found.root).parts[:-1]


def _with_neighbours(files: Sequence[Found]) -> list[Path]:
    """The files, and for each named one the scripts beside it: one of them may call what it defines."""
    paths = {found.path: None for found in files}
    for found in files:
        if found.named:
            beside = sorted(each for each in found.path.parent.glob("*.py") if not each.is_symlink())
            paths.update(dict.fromkeys(beside[:MOST_NEIGHBOURS]))
    return list(paths)


def _package_root(path: Path) -> Path:
    """The folder that absolute imports of this file's package start from."""
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        folder = folder.parent
    return folder


@dataclass
class _Graph:
    """Who imports whom, found file by file; a file outside the request is read when an import leads to it."""

    roots: dict[Path, Path]
    scans: dict[Path, Scan]
    on_disk: dict[Path, bool] = field(default_factory=dict)
    importers: dict[Path, set[Path]] = field(default_factory=dict)
    imports: dict[Path, set[Path]] = field(default_factory=dict)
    crowded: set[Path] = field(default_factory=set)  # files of pieces that are too large

    def __post_init__(self) -> None:
        for path in list(self.scans):
            for imported in self._imported(path):
                self.importers.setdefault(imported, set()).add(path)

    def connected(self, start: Path) -> set[Path] | None:
        """The piece that a file belongs to; None for one that is too large, which is not followed to its end."""
        piece, waiting = {start}, [start]
        while waiting:
            path = waiting.pop()
            linked = self._imported(path) | self.importers.get(path, set())
            waiting.extend(linked - piece)
            piece |= linked
            if len(piece) > LARGEST_PIECE or not linked.isdisjoint(self.crowded):
                self.crowded |= piece
                return None
        return piece

    def _imported(self, path: Path) -> set[Path]:
        if path not in self.imports:
            self.imports[path] = self._find_imported(path)
        return self.imports[path]

    def _find_imported(self, path: Path) -> set[Path]:
        if path not in self.scans:
            self.scans[path] = scan(path)
        root = self.roots.get(path) or _package_root(path)
        return {file for each in self.scans[path].imports for file in self._files(each, path, root)} - {path}

    def _files(self, imported: Import, importer: Path, root: Path) -> Iterator[Path]:
        """Files that an import may mean; one too many only makes a piece larger."""
        if imported.level:
            folders = [importer.parents[min(imported.level, len(importer.parents)) - 1]]
        else:
            above = [folder for folder in importer.parents if folder.is_relative_to(root)]
            folders = [*above, root / "src"]
        for folder in folders:
            module = folder.joinpath(*imported.module.split(".")) if imported.module else folder
            for name in ("", *imported.names):
                base = module / name if name else module
                candidates = (base.parent / f"{base.name}.py", base / "__init__.py")
                yield from (file for file in candidates if self._exists(file))

    def _exists(self, file: Path) -> bool:
        if file not in self.on_disk:
            self.on_disk[file] = file in self.roots or (file.is_file() and not file.is_symlink())
        return self.on_disk[file]
