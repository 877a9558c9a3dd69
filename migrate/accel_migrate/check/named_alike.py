"""Whether a path is the same on all processes: made of what is written out, of options and of what all know alike.

What comes from a process's own (its clock, chance, a temporary folder, its batches), or from where nobody looks, is not known
to be.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator
from functools import cached_property

from accel_migrate.check.divergence import VALUE, Divergence, Question
from accel_migrate.check.evidence import Side
from accel_migrate.check.seeds import Seeds
from accel_migrate.check.stores import Stores
from accel_migrate.flow.cfg import Decision
from accel_migrate.flow.file_calls import LISTING, sought
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.own_values import OWN, TELLING_TIME
from accel_migrate.flow.scopes import Module

# Libraries whose results depend on nothing but what they are given: those that read settings, and those that compute.
_PURE = (sys.stdlib_module_names - {"socket", "platform", "multiprocessing", "threading"}) | {
    "absl", "attr", "click", "configargparse", "easydict", "fire", "gin", "jsonargparse", "math", "ml_collections", "munch",
    "numpy", "omegaconf", "simple_parsing", "toml", "torch", "torchvision", "tqdm", "typer", "tyro", "yacs", "yaml",
}  # fmt: skip
_OPTIONS = ("wandb.config", "hydra.utils", "hydra.main", "transformers.HfArgumentParser", "accel_runtime", "accelerate")
_OF_CLASSES = frozenset(["__name__", "__class__", "__qualname__"])


class Names:
    """Asked for a path, why processes may have several names for it."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._made, self._chosen = _Made(side), side.once(Divergence)

    def own(self, file: Module, path: ast.expr) -> str:
        """A clause about its name; nothing if all are known to have one name for it."""
        return self._of(file, path) or self._of_folder

    def _of(self, file: Module, path: ast.expr) -> str:
        return self._made.of_value(file, path) or _by(self._chosen.of_value(file, path))

    @cached_property
    def _of_folder(self) -> str:
        """The same of the folder that the script works in."""
        changed = [(f, c.args[0]) for f, c in self._side.calls if c.args and f.qualified(c.func) == "os.chdir"]
        return next((own for file, folder in changed if (own := self._of(file, folder))), "")


def _by(own: str) -> str:
    return f"that each process makes for itself, by {own}" if own else ""


def _found(asks: ast.Call) -> str:
    return f"what it finds in a folder (`{unparse(asks)[:40]}`)"


def _unseen(source: ast.expr) -> str:
    text = unparse(source)[:40]
    return f"that may differ from process to process: it comes from `{text}`, which is not visible to the analysis"


class _Made(Divergence):
    """What a value is made of, whatever the tests are under which it came to be."""

    def __init__(self, side: Side) -> None:
        super().__init__(side)
        self._seeds = _NameSeeds(side)

    def _decisions(self, file: Module, node: ast.AST) -> Iterator[Decision]:
        return iter(())

    def _variable(self, asked: Question, name: ast.Name) -> Iterator[Question | str]:
        file = asked.file
        dotted = file.qualified(name)
        if dotted is not None and file.binder(name.id, file.scope(name)) is file.root and self._is_unseen(file, dotted):
            yield _unseen(name)
            return
        for store in self._stores.reaching(file, name):
            free = sought(store.file, store.node, name.id)
            if free is not None:
                yield _by(_found(free))
        yield from super()._variable(asked, name)

    def _attribute(self, asked: Question, node: ast.Attribute) -> Iterator[Question | str]:
        dotted = asked.file.qualified(node)
        if node.attr in _OF_CLASSES:
            return
        if dotted is not None and self._is_unseen(asked.file, dotted):
            yield _unseen(node)
            return
        yield from super()._attribute(asked, node)

    def _call(self, asked: Question, call: ast.Call) -> Iterator[Question | str]:
        if isinstance(call.func, ast.Name) and call.func.id == "len" and call.args:
            yield asked._replace(node=call.args[0], part=VALUE)  # how many files there are, by now
            return
        yield from super()._call(asked, call)

    def _is_unseen(self, file: Module, dotted: str) -> bool:
        return is_unseen(self._side, file, dotted)


class _NameSeeds(Seeds):
    """What a process names things by, and results of functions that are not visible."""

    def __init__(self, side: Side) -> None:
        super().__init__(side)
        self._stores = side.once(Stores)

    def of(self, file: Module, call: ast.Call) -> str:
        function, dotted = call.func, file.qualified(call.func)
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if dotted in OWN:
            return _by(OWN[dotted])
        if self._side.flows.callees.get(call) or self._side.flows.made(file, call, "instance"):
            return ""
        if isinstance(function, ast.Attribute) and name in TELLING_TIME:
            return _by("its clock")
        if name in LISTING and (dotted is None or dotted.split(".")[0] in ("os", "glob")):
            return _by(_found(call))
        if name == "hash" and isinstance(function, ast.Name):
            return _by("a hash that differs")
        if name.endswith("SummaryWriter") and not call.args and not call.keywords:
            return _by("its clock")
        own = super().of(file, call)
        if own:
            return _by(own)
        return _unseen(call) if self._is_unseen(file, function) else ""

    def _is_unseen(self, file: Module, function: ast.expr) -> bool:
        """Whether what is called is of a library that is not known, or a name that is set to what such a library made."""
        dotted = file.qualified(function)
        if dotted is not None:
            return is_unseen(self._side, file, dotted)
        if not isinstance(function, ast.Name):
            return False
        if file.binder(function.id, file.scope(function)) is None:
            return not hasattr(builtins, function.id)
        made = [store for store in self._stores.reaching(file, function) if isinstance(store.value, ast.Call)]
        return any(self._is_unseen(store.file, store.value.func) for store in made)  # type: ignore[union-attr]


def is_unseen(side: Side, file: Module, dotted: str) -> bool:
    """Whether a name is of a library, or of a file outside of the project, whose results nobody knows."""
    known = dotted.split(".")[0] in _PURE or dotted.startswith(_OPTIONS)
    return not known and side.program.locate(file, dotted) is None
