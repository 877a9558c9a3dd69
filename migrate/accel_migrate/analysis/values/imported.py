"""Files that are imported: by another file, or by a worker process that a loader spawns; and all that a run loads."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.closure import closure
from accel_migrate.flow.idle import Unit, Words, unit_of
from accel_migrate.flow.main_guard import under_main
from accel_migrate.flow.nodes import called_name
from accel_migrate.flow.program import Program
from accel_migrate.flow.scopes import Module, Variable

_FORKS = (None, "fork")


def is_imported(roles: Roles, module: Module) -> bool:
    """Whether a file runs more than once in a training: for its own sake, and for those who import it."""
    others = [other for other in roles.project.modules if other is not module]
    return any(module in roles.project.imports(other) for other in others) or any(
        _spawns(roles, other, call) for other, call in roles.project.calls
    )


def loaded_with(project: Program, module: Module, at: ast.AST | None = None) -> list[Module]:
    """The files that a training of this file may run with: those that import it, and what all of them import.

    What stands `at` the place where a file asks whether it is the script itself runs for none of those that import it.
    """
    if len(project.modules) == 1:
        return [module]
    return list(closure(scripts_that_run(project, module, at), project.imports))


def scripts_that_run(project: Program, module: Module, at: ast.AST | None) -> list[Module]:
    """The files that run what stands at a place of this one when they are started."""
    return [module, *starters_of(project, module, at)]


def runs_in(project: Program, variable: Variable, scripts: Collection[Module]) -> bool:
    """Whether a variable may be bound when some of these files are started, and not by another script alone."""
    module, function = variable.scope.module, variable.scope.function
    bound: list[ast.AST | None] = [each.statement for each in module.bindings(variable)]
    places = [function.body[0]] if function is not None else bound or [None]
    return any(runs_at(project, module, at, scripts) for at in places)


def runs_at(project: Program, module: Module, at: ast.AST | None, scripts: Collection[Module]) -> bool:
    """Whether what stands at a place of a file may run when some files are started."""
    return any(script in scripts for script in scripts_that_run(project, module, at))


def starters_of(project: Program, module: Module, at: ast.AST | None) -> list[Module]:
    """The files that may run what stands at a place of this one, by importing it."""
    others = importers_of(project, module)
    if at is None or under_main(module, at):
        return others if at is None else []
    function = module.scope(at).function
    if function is None or module.parents[function] is not module.tree:
        return others
    own = [node for node in module.walk(module.tree, ast.Name) if node.id == function.name]  # `main()` under the guard
    if not own or not all(under_main(module, node) for node in own):
        return others
    naming = [other for other in others if _mentions(other, function.name)]
    above = {each for other in naming for each in (other, *importers_of(project, other))}
    return [other for other in others if other in above]


def _mentions(module: Module, name: str) -> bool:
    """Whether a file may read a name of another one: imported by that name, or with all that it has; not `model.train()`."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr == name and module.qualified(node) is not None)
        or (isinstance(node, ast.ImportFrom) and any(alias.name in (name, "*") for alias in node.names))
        for node in module.walk(module.tree, ast.Attribute, ast.ImportFrom)
    )


def importers_of(project: Program, module: Module) -> list[Module]:
    """The files that import a file, and those that import these; tests run a training for themselves."""

    def naming(each: Module) -> list[Module]:
        return [other for other in project.modules if each in project.imports(other) and not _is_test(other)]

    return list(closure([module], naming))[1:]


def _is_test(module: Module) -> bool:
    return any(dotted.partition(".")[0] in ("pytest", "unittest") for dotted in module.imports.values())


def idle_in(project: Program, module: Module, running: Iterable[tuple[Module, ast.AST]]) -> frozenset[Unit]:
    """What cannot run in a training of this file, of which some nodes run, whatever other scripts of the project call."""
    own = [unit for owner, node in running if (unit := unit_of(node, owner.ancestors(node))) is not None]
    loaded = loaded_with(project, module)
    scripts = {module, *importers_of(project, module)}
    return Words([m.tree for m in loaded], [m.tree for m in loaded if m not in scripts]).idle(own)


def brought_by(project: Program, modules: Iterable[Module]) -> list[Module]:
    """All that some files import, and these in turn, without themselves."""
    first = list(modules)
    return [each for each in closure(first, project.imports) if each not in first]


def _spawns(roles: Roles, module: Module, call: ast.Call) -> bool:
    """`DataLoader(..., multiprocessing_context="spawn")`, `set_start_method("spawn")`: workers import the main file anew."""
    name = called_name(call)
    if name == "set_start_method":
        return not (call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value in _FORKS)
    if not roles.role(module, call) & Role.LOADER:
        return False
    said = [keyword.value for keyword in call.keywords if keyword.arg == "multiprocessing_context"]
    return any(not isinstance(value, ast.Constant) or value.value not in _FORKS for value in said)
