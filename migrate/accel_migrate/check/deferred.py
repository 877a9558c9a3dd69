"""What functions read from outside of them, and whether it is bound when they are called."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from accel_migrate.check.condition import Project
from accel_migrate.check.pair import Pair
from accel_migrate.flow.definitions import Called, Names
from accel_migrate.flow.main_guard import asks_for_name
from accel_migrate.flow.nodes import walk
from accel_migrate.flow.once import once
from accel_migrate.flow.scopes import Scope, Variable
from accel_migrate.flow.version import Version

_STARTS_PROCESSES = frozenset({"spawn", "start_processes", "Process"})


@dataclass(frozen=True)
class DeferredRead:
    """A call of a function that reads a name which may not be bound at the call."""

    function: str
    name: str
    scope: str
    call: ast.Call

    @property
    def key(self) -> tuple[str, str, str]:
        return self.function, self.name, self.scope

    @property
    def line(self) -> int:
        return self.call.lineno


def deferred_reads(program: Version) -> Iterator[DeferredRead]:
    """Every call in a scope of a function that reads names of that scope before they are bound."""
    names = program.names
    needs = _needs_of(names)
    for call in names.calls:
        home = call.scope.frame
        for function in needs.called(call):
            for variable in needs.of(function):
                if variable.scope is not home or variable in names.bound_elsewhere:
                    continue
                if not program.assignment(home).is_bound(variable, call.statement):
                    yield DeferredRead(function.name, variable.name, home.path, call.node)


@once
def _needs_of(names: Names) -> _Needs:
    return _Needs(names)


class _Needs:
    """The outer variables that each function reads when it is called, through the functions that it calls."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._own: dict[Scope, set[Variable]] = {}
        self._calls: dict[Scope, set[Scope]] = {}
        self._known: dict[Scope, set[Variable]] = {}
        self._methods: dict[str, list[Scope]] = {}
        self._defined_names = {scope.name for scope in names.scopes}
        for scope in names.scopes:
            if scope.parent is not None and scope.parent.is_class and scope.frame is scope:
                self._methods.setdefault(scope.name, []).append(scope)
        for read in names.reads:
            home = read.scope.frame
            variable = names.resolve(read.name, read.scope) if home.parent is not None else None
            if variable is not None and variable.scope.frame is not home:
                self._own.setdefault(home, set()).add(variable)
        for call in names.calls:
            home = call.scope.frame
            if home.parent is not None:
                self._calls.setdefault(home, set()).update(self.called(call))

    @once
    def called(self, call: Called) -> list[Scope]:
        """The functions that a call runs or hands on: by name, a class's own, a method of that name."""
        found: list[Scope] = []
        arguments = [*call.node.args, *[keyword.value for keyword in call.node.keywords]]
        for expression in (call.node.func, *arguments):
            if isinstance(expression, ast.Name) and expression.id in self._defined_names:
                variable = self.names.resolve(expression.id, call.scope)
                if variable is not None:
                    found += self._defined(variable)
        if isinstance(call.node.func, ast.Attribute):
            found += self._methods.get(call.node.func.attr, ())
        return found

    def _defined(self, variable: Variable) -> Iterable[Scope]:
        for node in variable.scope.bound(variable.name):
            scope = self.names.module.scopes.get(node)
            if scope is None:
                continue
            if not scope.is_class:
                yield scope
            else:
                yield from (m for m in self._methods.get("__init__", ()) if m.parent is scope)

    def of(self, function: Scope) -> set[Variable]:
        if function not in self._known:
            found: set[Variable] = set()
            waiting, seen = [function], {function}
            for each in waiting:
                found |= self._own.get(each, set())
                new = self._calls.get(each, set()) - seen
                seen |= new
                waiting += sorted(new, key=lambda scope: scope.path)
            self._known[function] = found
        return self._known[function]


def lost_on_import(project: Project) -> Iterator[tuple[Pair, str, str]]:
    """Names bound only when a file runs as a script, read by a function that another file or process imports."""
    for file in project.changed:
        only = _only_as_script(file.after)
        if not only:
            continue
        needs, needed_before = _needs_of(file.after.names), _read_as_script(file.before)
        root = file.after.names.root
        for function in _used_from_outside(project, file, needs):
            for variable in sorted(needs.of(function), key=lambda v: v.name):
                if variable.scope is root and variable.name in only and variable.name not in needed_before:
                    yield file, variable.name, function.name


def _used_from_outside(project: Project, file: Pair, needs: _Needs) -> Iterator[Scope]:
    names = file.after.names
    imported = {
        alias.name
        for other in project.files
        if other is not file and file.path.stem.encode() in other.after.source.data
        for node in walk(other.after.tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[-1] == file.path.stem
        for alias in node.names
    }
    for scope in names.scopes:
        if scope.parent is names.root and scope.frame is scope and scope.name in imported:
            yield scope
    for call in names.calls:
        last = call.node.func.attr if isinstance(call.node.func, ast.Attribute) else getattr(call.node.func, "id", "")
        if last in _STARTS_PROCESSES:
            yield from (each for each in needs.called(call) if each.name != last)


def _only_as_script(program: Version) -> set[str]:
    """Module-level names that are bound under `if __name__ == "__main__":` and nowhere else."""
    module = program.module
    guards = [s.body for s in program.tree.body if isinstance(s, ast.If) and asks_for_name(s.test)]
    return {
        name
        for name in (module.root.bindings if guards else ())
        if all(any(module.spans(body[0], body[-1], node) for body in guards) for node in module.root.bound(name))
    }


def _read_as_script(program: Version) -> set[str]:
    """Such names that a function read before: that worked, or failed, as it does now."""
    only = _only_as_script(program)
    root = program.names.root
    return {
        variable.name
        for variable, reads in program.names.reads_of.items()
        if variable.scope is root and variable.name in only and any(read.scope.frame is not root for read in reads)
    }
