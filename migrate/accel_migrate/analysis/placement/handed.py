"""Loaders that a function builds or is handed where nothing else is prepared: each is prepared there."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.provenance import Built, Handed, chain
from accel_migrate.analysis.values.roles import Role
from accel_migrate.flow.scopes import Scope, Variable


def prepared_in_functions(
    graph: CallGraph, chains: tuple[list[Variable], ...], read_whole: Iterable[Variable | None]
) -> tuple[Handed, ...]:
    """The loaders that no object keeps, each with what builds it, or begins the function that is handed it.

    That is the outermost method of a trainer, which has the Accelerator. None where one of them is not known.
    """
    whole = {link for variable in read_whole for link in chain(graph, variable)}
    owners = {link.scope for links in chains for link in links if link.scope.is_class}
    found: dict[Handed, None] = {}
    for links in chains:
        if any(link.scope.is_class for link in links) or not any(graph.roles.of(v) & Role.LOADER for v in links[:1]):
            continue
        methods = [link for link in reversed(links) if link.scope.parent in owners and link.scope.self_name is not None]
        usable = (link for link in (methods if owners else links[-1:]) if _is_only_way(graph, links, link))
        place = next(((link, step) for link in usable if (step := _prepared_at(link)) is not None), None)
        if place is None or place[0] in whole:  # one that both trains and evaluates would shard what it evaluates
            return ()
        found[Built(Role.LOADER, place[0]), place[1]] = None
    return tuple(found)


def _prepared_at(link: Variable) -> ast.stmt | None:
    """The only statement that gives a variable of a function a value, or the first one of a function that is handed it."""
    scope, bindings = link.scope, link.scope.module.bindings(link)
    if not scope.is_function or scope.name == "__init__" or "." in link.name:
        return None
    if all(binding.kind == "parameter" for binding in bindings):
        return _first_statement(scope)
    (first, *others) = bindings
    return first.statement if first.kind == "assign" and not first.path and not others else None


def _is_only_way(graph: CallGraph, links: list[Variable], outermost: Variable) -> bool:
    """Whether all that leads a loader from there to its loop is handed nothing else."""
    inside = links[: links.index(outermost) + 1]
    given = [(caller, part) for link in inside[:-1] for caller, _, part in graph.given(link)]
    return all(part is not None and caller.variable(part) in inside for caller, part in given)


def _first_statement(scope: Scope) -> ast.stmt:
    body: list[ast.stmt] = scope.node.body  # type: ignore[attr-defined]
    documented = ast.get_docstring(scope.node, clean=False) is not None and len(body) > 1  # type: ignore[arg-type]
    return body[1] if documented else body[0]
