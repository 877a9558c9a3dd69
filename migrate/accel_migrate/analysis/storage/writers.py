"""Writers of events that can be silent on all processes but one: whoever has them only tells them things."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.storage.files import is_forward, opens_events
from accel_migrate.analysis.values.imported import is_imported
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.roles import Role, arguments_of
from accel_migrate.flow.closure import closure
from accel_migrate.flow.nodes import children
from accel_migrate.flow.program import Definition
from accel_migrate.flow.scopes import Module, Variable

_TOLD = ("close", "flush")


def plain_writers(graph: CallGraph, module: Module) -> Iterator[ast.Call]:
    """The SummaryWriters of a file of which nothing is ever asked, and that run no model."""
    for call in module.calls:
        statement = module.parents[call]
        if not isinstance(statement, ast.Assign) or len(statement.targets) > 1:
            continue
        if opens_events(graph.roles, module, call):
            variable = module.variable(statement.targets[0])
            if variable is not None and _Reads(graph).only_tell(variable):
                yield call


class _Reads:
    """Goes through all that reads a writer, under each name that it has."""

    def __init__(self, graph: CallGraph) -> None:
        self.roles = graph.roles
        self.graph = graph
        self.seen: set[Variable] = set()

    def only_tell(self, variable: Variable) -> bool:
        """Whether every read of a variable is a call that writes events, or hands it to where that holds too."""
        if variable in self.seen:
            return True
        self.seen.add(variable)
        scope = variable.scope
        if scope.parent is None and is_imported(self.roles, scope.module):
            return False  # another file may read it
        return all(self._tells(module, node) for module, node in self._reads(variable))

    def _reads(self, variable: Variable) -> Iterator[tuple[Module, ast.expr]]:
        """Of an attribute, those of whatever object: that another has the same name is not known to be another writer."""
        name = variable.name.rpartition(".")[2]
        if "." in variable.name:
            for module in self.roles.project.modules:
                for node in module.walk(module.tree, ast.Attribute):
                    if node.attr == name and isinstance(node.ctx, ast.Load):
                        yield module, node
            return
        module = variable.scope.module
        yield from ((module, read) for read in module.reads(variable))

    def _tells(self, module: Module, node: ast.expr) -> bool:
        above = module.parents[node]
        match above:
            case ast.Attribute(attr=name) if name.startswith("add_") or name in _TOLD:
                call = module.parents[above]
                told = isinstance(call, ast.Call) and call.func is above and isinstance(module.parents[call], ast.Expr)
                return told and isinstance(call, ast.Call) and not self._runs_model(module, call)
            case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot()]):
                return left is node
            case ast.Assign(targets=[target]):
                variable = module.variable(target)
                return variable is not None and "." in variable.name and self.only_tell(variable)
            case ast.keyword():
                return self._handed(module, module.parents[above], node)
            case ast.Call():
                return self._handed(module, above, node)
        return False

    def _handed(self, module: Module, call: ast.AST, node: ast.expr) -> bool:
        target = self.roles.target(module, call) if isinstance(call, ast.Call) else None
        if target is None or not isinstance(call, ast.Call):
            return False
        if isinstance(target.node, ast.ClassDef):
            built = target.module.classes[target.node].constructor
            if built is None:
                return False
            target = Definition(target.module, built)
        names = [name for name, value in arguments_of(call, target) if value is node]
        scope = target.module.functions[target.node]
        return len(names) == 1 and self.only_tell(Variable(scope, names[0]))

    def _runs_model(self, module: Module, call: ast.Call) -> bool:
        """`writer.add_graph(model, x)`: all processes must run a prepared model, or none; what a model gives, all work out."""

        def parts(node: ast.AST) -> list[ast.AST]:
            runs = isinstance(node, ast.Call) and is_forward(self.roles, module, node)
            return [] if runs else children(node)

        given: list[ast.AST] = [*call.args, *call.keywords]
        names = (node for node in closure(given, parts) if isinstance(node, ast.Name))
        return any(self.roles.role(module, name) & Role.MODEL for name in names)
