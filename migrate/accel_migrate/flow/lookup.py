"""Which file of the project a module's name means: one answer for all who follow an import."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from accel_migrate.flow.libraries import is_library
from accel_migrate.flow.scopes import Module


def import_roots(importer: Path) -> Iterator[Path]:
    """The folders that an absolute import may start from: the importer's own, then those around it, each with its `src`."""
    for folder in importer.parents:
        yield folder
        yield folder / "src"


def split(dotted: str) -> tuple[str, str]:
    """The module that a name is imported from, and the name: `..` and `engine` of `..engine`."""
    rest = dotted.lstrip(".")
    owner, _, name = rest.rpartition(".")
    return dotted[: len(dotted) - len(rest)] + owner, name


class Lookup:
    """The files of a project, by the names that they are imported by."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self.modules = list(modules)
        self._by_path = {module.path: module for module in self.modules}
        self._by_name: dict[str, list[Module]] = {}
        for module in (each for each in self.modules if each.path.suffix == ".py"):  # a notebook is not imported
            self._by_name.setdefault(module_path(module).name, []).append(module)
        packages = {"__init__"} if any(module.path.name == "__init__.py" for module in self.modules) else set()
        self._names = {*self._by_name, *packages, ""}
        self._found: dict[tuple[Path, str], Module | None] = {}

    def imported_module(self, importer: Module, dotted: str) -> Module | None:
        """The file behind a module's name as the importer writes it, looked up beside the importer and then further out."""
        if not dotted or dotted.rpartition(".")[2] not in self._names:
            return None
        key = (importer.path.parent, dotted)
        if key not in self._found:
            self._found[key] = self._find(importer, dotted)
        return self._found[key]

    def locate(self, importer: Module, dotted: str) -> tuple[Module, str | None] | None:
        """The file that a dotted name leads to, and what is named in it; None stands for the file itself."""
        if self._names.isdisjoint(dotted.rsplit(".", 2)[-2:]):
            return None
        module = self.imported_module(importer, dotted)
        if module is not None:
            return module, None
        owner, name = split(dotted)
        module = self.imported_module(importer, owner) if owner and name else None
        return (module, name) if module is not None else None

    def _find(self, importer: Module, dotted: str) -> Module | None:
        rest = dotted.lstrip(".")
        parts = rest.split(".") if rest else []
        if rest != dotted:
            folder = importer.path.parent
            for _ in range(len(dotted) - len(rest) - 1):
                folder = folder.parent
            return self._module_in(folder, parts)
        found = (self._module_in(root, parts) for root in import_roots(importer.path))
        return next((module for module in found if module is not None), None) or self._only(dotted)

    def _module_in(self, folder: Path, parts: list[str]) -> Module | None:
        path = Path(folder, *parts)
        beside = self._by_path.get(path.with_name(path.name + ".py")) if parts else None
        return beside or self._by_path.get(path / "__init__.py")

    def _only(self, dotted: str) -> Module | None:
        """The one file of a name, wherever it is, where a script may have put its folder on the path."""
        parts = tuple(dotted.split("."))
        same = [m for m in self._by_name.get(parts[-1], ()) if module_path(m).parts[-len(parts) :] == parts]
        followed = len(same) == 1 and not is_library(dotted)
        return same[0] if followed and any(b"sys.path" in each.source.data for each in self.modules) else None


def module_path(module: Module) -> Path:
    """The path of a file as a module: that of its folder for an `__init__.py`."""
    return module.path.parent if module.path.name == "__init__.py" else module.path.with_suffix("")
