"""What is read of an evaluation once its loop is over: the same whatever batches the rows came in?"""

from __future__ import annotations

import ast
from collections.abc import Set

from accel_migrate.analysis.evaluation.figures import NotExact
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Roles
from accel_migrate.flow.nodes import is_call_of, unparse, walk
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Binding, Module, Variable
from accel_migrate.flow.sequence import comes_first, follows

_JOINS = {"cat", "concat", "concatenate", "vstack", "hstack", "chain", "from_iterable"}


def check_after(module: Module, loop: ast.For | ast.AsyncFor, known: Set[str | None] = frozenset()) -> None:
    """Raise NotExact where the last batch, or what was made of it, is read after the loop; those of `known` names may be."""
    inside = set(module.walk(loop))
    scope = module.scope(loop)
    bound = {
        node.id
        for node in inside
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and module.scope(node) is scope
    } - known
    around = scope.node if scope.is_function else module.tree
    for node in module.walk(around, ast.Name):
        if isinstance(node.ctx, ast.Load) and node.id in bound and node not in inside:
            variable = module.variable(node)
            if variable is not None and variable.scope is scope and _is_left_over(module, node, loop, inside):
                raise NotExact(f"`{node.id}` of the last batch is read after the loop", node)


def _is_left_over(module: Module, node: ast.Name, loop: ast.For | ast.AsyncFor, inside: set[ast.AST]) -> bool:
    """Whether a name may hold what a round of the loop bound it to, other than a sum that goes on from before."""
    bindings = reaching(module, node)
    if is_set_above(module, node, loop, bindings):
        return False
    for binding in bindings:
        if binding.statement not in inside or binding.kind == "augment":
            continue
        value = binding.value
        goes_on = value is not None and any(isinstance(n, ast.Name) and n.id == node.id for n in walk(value))
        if binding.kind in ("assign", "for") and not goes_on:
            return True
    return False


def is_set_above(module: Module, node: ast.Name, loop: ast.For | ast.AsyncFor, bindings: list[Binding]) -> bool:
    """Whether a name that is read above a loop has a value of the same round, as of another loop further above."""
    around = next((parent for parent in module.ancestors(loop) if isinstance(parent, ast.For | ast.While)), None)
    return (
        around is not None
        and comes_first(module, node, loop)
        and any(
            module.holds(around, b.statement)
            and (module.holds(b.statement, node) or follows(module, b.statement, node))
            for b in bindings
        )
    )


def divided_by_length(roles: Roles, graph: CallGraph, loader: Variable) -> tuple[Module, ast.Call] | None:
    """Where something is divided by the number of batches of a loader, under whatever name a function has it."""
    own = set(chain(graph, loader))
    for module in roles.project.modules:
        for node in module.walk(module.tree, ast.BinOp, ast.AugAssign):
            divisor = node.right if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) else None
            if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
                divisor = node.value
            if divisor is None or not is_length(divisor):
                continue
            variable = module.variable(divisor.args[0])  # type: ignore[attr-defined]
            if variable is not None and not own.isdisjoint(chain(graph, variable)):
                return module, divisor  # type: ignore[return-value]
    return None


def is_length(node: ast.AST) -> bool:
    """`len(something)`."""
    return is_call_of(node, "len") and len(node.args) == 1


def check_joined(module: Module, loop: ast.For | ast.AsyncFor, collected: ast.expr) -> None:
    """Raise NotExact unless a list of batches is only ever joined into one: how many it holds is not the same."""
    variable = module.variable(collected)
    for node in module.walk(module.tree, ast.Name, ast.Attribute):
        if not isinstance(node.ctx, ast.Load):
            continue
        if module.variable(node) != variable or (isinstance(node, ast.Name) and module.holds(loop, node)):
            continue
        parent = module.parents[node]
        if isinstance(parent, ast.Attribute) and parent.attr in ("append", "extend", "clear"):
            continue
        if isinstance(parent, ast.Starred):
            parent = module.parents[parent]
        name = parent.func.attr if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) else ""
        flat = is_call_of(parent, "chain", "sum")
        if not (name in _JOINS or (flat and len(parent.args) != 1)):  # type: ignore[attr-defined]
            raise NotExact(f"`{unparse(node)}` holds one entry for each batch", node)
