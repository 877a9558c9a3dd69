"""Code that nothing runs: functions and classes that no running code has a word for.

A word is enough to run something: a name, an attribute, a text that may be looked up. So what is idle is certain.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator

from accel_migrate.flow.libraries import is_library
from accel_migrate.flow.main_guard import asks_for_name
from accel_migrate.flow.nodes import BLOCKS, children, walk
from accel_migrate.flow.once import once

Unit = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef  # one that is in no other
_LOOKS_UP = {"globals", "locals", "vars", "eval", "exec", "import_module", "__import__"}
_ANY = "(any)"  # the word of what looks up a name that is not written out
_SHOWS_ALL = {"fire", "jsonargparse"}  # every function of a file is a command


class Words:
    """The words of each function and class of some files, and those of what runs when the files do.

    Files that are only `imported` do not run what is under `if __name__ == "__main__":`.
    """

    def __init__(self, trees: Iterable[ast.Module], imported: Container[ast.Module] = ()) -> None:
        self._files = [(tree, tree in imported) for tree in trees]
        self.units = [unit for tree, is_imported in self._files for unit in _units(tree, is_imported)]
        self.of: dict[Unit, set[str]] = {}
        self.top: set[str] = set()
        self._renamed: dict[str, set[str]] = {}
        self._shown = False

    def _read(self) -> None:
        for tree, is_imported in self._files:
            units, top, imports = _words_of(tree, is_imported)
            self.of.update(units)
            self.top |= top
            for alias in imports:
                self._shown = self._shown or alias.name.split(".")[0] in _SHOWS_ALL
                if alias.asname is not None:
                    self._renamed.setdefault(alias.asname, set()).add(alias.name)

    def idle(self, running: Iterable[Unit]) -> frozenset[Unit]:
        """What cannot run where some of them do: not on the way to these, and not named by what runs."""
        found = set(running)
        if found.issuperset(self.units):
            return frozenset()
        self._read()
        if not found <= self.of.keys():
            return frozenset()  # what a function of another file names is not known
        while above := [u for u in self.of if u not in found and self.of[u] & {each.name for each in found}]:
            found.update(above)
        words = self._all(self.top.union(*[self.of[unit] for unit in found]))
        while more := [u for u in self.of if u not in found and (u.name in words or u.decorator_list)]:
            found.update(more)
            words |= self._all(set().union(*[self.of[unit] for unit in more]))
        return frozenset() if self._shown or _ANY in words else frozenset(self.of.keys() - found)

    def _all(self, words: set[str]) -> set[str]:
        return words.union(*[self._renamed[word] for word in words if word in self._renamed])


@once
def _words_of(tree: ast.Module, imported: bool) -> tuple[dict[Unit, set[str]], set[str], list[ast.alias]]:
    """The words of a file's functions and classes, those of what runs with it, and all that it imports."""
    units = _units(tree, imported)
    imports: list[ast.alias] = []
    foreign = _of_libraries(tree)
    top = _words(_outside(tree, imported), imports, foreign)
    found = {unit: _words(walk(unit), imports, foreign) for unit in units}
    return found, top.union(*[_words(_at_definition(unit), imports, foreign) for unit in units]), imports


def _of_libraries(tree: ast.Module) -> set[str]:
    """The names that a file has from libraries, whose own names are none of the project's."""
    found: set[str] = set()
    for node in walk(tree):
        if type(node) is ast.Import:
            found |= {alias.asname or alias.name.split(".")[0] for alias in node.names if is_library(alias.name)}
        elif type(node) is ast.ImportFrom and not node.level and is_library(node.module or ""):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


def _words(nodes: Iterable[ast.AST], imports: list[ast.alias], foreign: set[str]) -> set[str]:
    words: set[str] = set()
    for node in nodes:
        if type(node) is ast.Name:
            words.add(_ANY if node.id in _LOOKS_UP else node.id)
        elif type(node) is ast.Attribute:
            words.add(_ANY if node.attr == "import_module" else node.attr)  # `net.eval()` looks up nothing
        elif type(node) is ast.Constant:
            if type(node.value) is str:
                words.update(node.value.replace(":", ".").split("."))
        elif type(node) is ast.Call or type(node) is ast.Subscript:
            if _looks_up(node, foreign):
                words.add(_ANY)
        elif type(node) is ast.Import or type(node) is ast.ImportFrom:
            imports += node.names
    return words


def unit_of(node: ast.AST, above: Iterable[ast.AST]) -> Unit | None:
    """The function or class of a file that a node is in, from all that is above it."""
    found = [each for each in (node, *above) if isinstance(each, Unit)]
    return found[-1] if found else None


@once
def _units(tree: ast.Module, imported: bool) -> list[Unit]:
    """The functions and classes that are in no other."""
    found: list[Unit] = []
    blocks: list[ast.AST] = [tree]
    for node in blocks:
        for child in [each for name in BLOCKS[type(node)] for each in getattr(node, name)]:
            if isinstance(child, Unit):
                found.append(child)
            elif not (imported and _is_main_guard(child)):
                blocks.append(child)
    return found


def _outside(tree: ast.Module, imported: bool) -> list[ast.AST]:
    """Every node outside of them."""
    found: list[ast.AST] = [tree]
    for node in found:
        found += [
            child for child in children(node) if not (isinstance(child, Unit) or (imported and _is_main_guard(child)))
        ]
    return found


def _is_main_guard(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and asks_for_name(node.test)


def _at_definition(unit: Unit) -> Iterator[ast.AST]:
    """What of a function or class runs where it is defined: defaults, decorators, bases, the statements of a class."""
    if isinstance(unit, ast.ClassDef):
        run = [*unit.bases, *unit.keywords, *[s for s in unit.body if not isinstance(s, Unit)]]
    else:
        run = [*unit.args.defaults, *[default for default in unit.args.kw_defaults if default is not None]]
    yield from (part for node in (*run, *unit.decorator_list) for part in walk(node))


def _looks_up(node: ast.Call | ast.Subscript, foreign: set[str]) -> bool:
    """`getattr(models, name)` or `models.__dict__[name]`, with a name that is not written out, of a file of the project."""
    match node:
        case ast.Call(func=ast.Name(id="getattr"), args=[found, name, *_]):
            pass
        case ast.Subscript(value=ast.Attribute(value=found, attr="__dict__"), slice=name):
            pass
        case _:
            return False
    root = found
    while isinstance(root, ast.Attribute):
        root = root.value
    return not isinstance(name, ast.Constant) and getattr(root, "id", "") not in foreign
