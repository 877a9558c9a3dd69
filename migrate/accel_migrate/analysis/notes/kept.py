"""What is kept from step to step: made of this process's own batches, and read again where a loss is computed.

Silent where nothing that outlives a step and is read on the way of the loss is changed in it, or only by numbers that no
batch is seen to have part in.

Queues of keys, codebooks by moving averages, banks of features, pools of pictures, centres, labels that training changes.
A figure that is only shown is not that, nor what an optimizer or a copy of weights changes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from accel_migrate.analysis.processes.local import Locality
from accel_migrate.analysis.values.loops import Backward, CallGraph, numbers_batches, training_loops
from accel_migrate.analysis.values.loss_path import LossPath
from accel_migrate.analysis.values.made_of import made_of
from accel_migrate.analysis.values.roles import Role
from accel_migrate.analysis.values.sources import Code, Place, held, returned, run_by
from accel_migrate.flow.cfg import graph_of
from accel_migrate.flow.closure import closure
from accel_migrate.flow.nodes import all_arguments, calls_method, operands
from accel_migrate.flow.once import once
from accel_migrate.flow.program import Definition
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Binding, Function, Module, Variable
from accel_migrate.flow.torch_api import GROWS

_SIZES = {"size", "shape", "len", "dim", "numel", "range", "ndim", "arange"}
_NOT_KEPT = Role.OPTIMIZER | Role.SCHEDULER | Role.LOADER | Role.LOADERS | Role.ITERATOR | Role.DEVICE | Role.SCALER
_CHANGING = (ast.Assign, ast.AugAssign, ast.Call)
_RUNS = ("forward", "__call__")


@dataclass(frozen=True, eq=False)
class Kept:
    """`name` takes in what one process computed, at `statement`."""

    module: Module
    statement: ast.stmt
    name: str
    owner: ast.ClassDef | None  # the class whose objects keep it
    is_buffer: bool  # of a module, which a wrapper hands to all processes


@dataclass(frozen=True, eq=False)
class _Write:
    """Some of what a variable holds is changed, the rest stays."""

    module: Module
    node: ast.AST
    variable: Variable
    given: tuple[ast.expr, ...]


@once
def find_kept(graph: CallGraph, local: Locality, backwards: tuple[Backward, ...]) -> list[Kept]:
    """Each once, at the first place where it is changed."""
    path = _Path(graph, backwards)
    writes = _Writes(graph, local, path, list(backwards))
    found: dict[tuple[ast.ClassDef | None, Module, str], Kept] = {}
    for write in writes.all:
        node = write.variable.scope.node
        owner = node if isinstance(node, ast.ClassDef) else None
        name = write.variable.name
        known = (owner, write.module, name)  # a name that a function is handed is the same thing again
        if write.variable in path.read and known not in found and writes.is_own(write):
            is_buffer = owner is not None and _is_buffer(write.variable.scope.module, owner, name.partition(".")[2])
            found[known] = Kept(write.module, write.module.statement(write.node), name, owner, is_buffer)
    return list(found.values())


class _Path(LossPath):
    """The path of a loss, through the forward of every module that is visible, with all that is read on it."""

    def __init__(self, graph: CallGraph, backwards: Iterable[Backward]) -> None:
        self.read: set[Variable] = set()
        self.functions: dict[Function, Module] = {}
        super().__init__(graph, backwards)
        for model in list(self.models):  # what a `Sequential` or a list of layers runs
            for part in made_of(graph, model):
                forward = graph.roles.project.method(part, "forward") if isinstance(part.node, ast.ClassDef) else None
                if forward is not None:
                    self._follow(self._entered(forward))

    def _call(self, module: Module, call: ast.Call) -> Iterator[Place]:
        yield from super()._call(module, call)
        target = run_by(self.graph, module, call)
        if target is not None:
            yield from self._entered(target)

    def _entered(self, target: Definition) -> list[Place]:
        self.functions[target.node] = target.module  # type: ignore[index]
        return [(target.module, value) for value in target.returned]

    def _read(self, module: Module, node: ast.Name | ast.Attribute) -> Iterator[Place]:
        variable = module.variable(node)
        if variable is not None:
            self.read.add(whole(variable))
        yield from super()._read(module, node)
        if self.roles.of(variable) == Role.BATCH and not any(b.kind == "for" for b in reaching(module, node)):
            yield from held(self.graph, module, node)  # `x = pool.query(x)`, not the loader of a loop


class _Writes:
    """What a step changes in part: in place, entry by entry, by adding to it, or by making it anew of itself."""

    def __init__(self, graph: CallGraph, local: Locality, path: _Path, backwards: list[Backward]) -> None:
        self.roles = graph.roles
        self.graph = graph
        self.local = local
        self.backwards = backwards
        region = [(module, part) for module, node in self._region(path) for part in module.walk(node, *_CHANGING)]
        written = (self._at(module, part) for part, module in {part: module for module, part in region}.items())
        self.all = [write for write in written if write is not None]

    def is_own(self, write: _Write) -> bool:
        """Whether what is put in is made of batches: this process's own, or whatever a forward is given."""
        given: list[Place] = [(write.module, part) for part in write.given]
        return any(self._is_of_batch(*place) for place in closure(given, lambda place: self._steps(*place)))

    def _region(self, path: _Path) -> list[tuple[Module, ast.AST]]:
        """The loops that train, and every function that they run."""
        loops: dict[ast.AST, Module] = {}
        for backward in self.backwards:
            for around in backward.module.ancestors(backward.call):
                if isinstance(around, ast.For | ast.While) or around is backward.function:
                    loops[around] = backward.module
            for caller, call in self.graph.sites.get(backward.function, ()) if backward.function is not None else ():
                loops |= {loop: caller for loop in caller.ancestors(call) if isinstance(loop, ast.For | ast.While)}
        first: list[Code] = [(module, node) for node, module in (*loops.items(), *path.functions.items())]
        return list(closure(first, self._run_by))

    def _run_by(self, code: Code) -> Iterator[Code]:
        module, node = code
        for call in module.walk(node, ast.Call):
            target = run_by(self.graph, module, call)
            if target is not None and getattr(target.node, "name", "") != "__init__":
                yield target.module, target.node

    def _at(self, module: Module, node: ast.AST) -> _Write | None:
        changed, given = self._applied(module, node) or changed_in(module, node)
        variable = module.variable(changed) if changed is not None else None
        if variable is None or self.roles.of(variable) & _NOT_KEPT:
            return None
        variable = whole(variable)
        if any(binding.kind == "import" for binding in variable.scope.module.bindings(variable)):
            return None  # `torch.empty(1).fill_(x)` changes what it has just made
        kept = not self.roles.of(variable) & _NOT_KEPT and self._outlives(module, module.statement(node), variable)
        return _Write(module, node, variable, tuple(given)) if kept else None

    def _applied(self, module: Module, node: ast.AST) -> tuple[ast.expr | None, list[ast.expr]] | None:
        """`Bank.apply(x, self.memory)`, where a method of that autograd.Function changes its `memory` in place."""
        if not (calls_method(node, "apply")):
            return None
        owner = self.roles.project.definition(module, node.func.value)
        forward = self.roles.project.method(owner, "forward") if owner is not None else None
        if owner is None or forward is None or not isinstance(forward.node, ast.FunctionDef):
            return None
        changed = [changed_in(owner.module, n)[0] for n in owner.module.walk(owner.node, ast.Assign, ast.Call)]
        names = {root.id for root in changed if isinstance(root, ast.Name)}
        for parameter, argument in zip(forward.node.args.args[1:], node.args):
            if parameter.arg in names and isinstance(root := _root(argument), ast.Attribute):
                return root, [other for other in node.args if other is not argument]
        return None

    def _outlives(self, module: Module, statement: ast.stmt, variable: Variable) -> bool:
        """Whether a variable has been there before the step, and none sets it up anew in it."""
        steps = self._steps_around(module, statement)
        if variable.scope.is_class:
            return variable.name.startswith("self.") and not self._is_begun(module, statement, variable, steps)
        if variable.scope.function is not module.scope(statement).function:
            return variable.scope.parent is None
        inside = [b for b in module.bindings(variable) if steps is not None and module.holds(steps, b.statement)]
        return steps is not None and all(b.kind == "augment" or _reads(module, b.value, variable) for b in inside)

    def _steps_around(self, module: Module, statement: ast.stmt) -> ast.For | ast.While | None:
        """The loop around a statement that goes from batch to batch; without one, that which goes from step to step."""
        trains = training_loops(self.graph, self.backwards, module, statement)
        return next((loop for loop in trains if loop in self.local.loops), trains[0] if trains else None)

    def _is_begun(self, module: Module, statement: ast.stmt, variable: Variable, steps: ast.stmt | None) -> bool:
        """Whether an attribute is always set up anew before a statement, in its function and in the same step."""
        function = module.scope(statement).function
        if function is None:
            return False
        graph = graph_of(module.tree, function)
        return any(
            graph.holds(first)
            and graph.dominates(first, statement)
            and (steps is None or module.holds(steps, first))
            and self._begins(module, first, variable)
            for first in module.walk(function, ast.Assign, ast.Expr)
        )

    def _begins(self, module: Module, statement: ast.AST, variable: Variable) -> bool:
        """Whether a statement sets a variable up anew, or calls a function that does."""
        if any(b.statement is statement for b in variable.scope.module.bindings(variable)):
            return isinstance(statement, ast.Assign) and not _reads(module, statement.value, variable)
        called = statement.value if isinstance(statement, ast.Expr) else None
        target = self.roles.function(module, called) if isinstance(called, ast.Call) else None
        return target is not None and any(
            isinstance(first, ast.Assign) and self._begins(target.module, first, variable) for first in target.node.body
        )

    def _steps(self, module: Module, node: ast.expr) -> Iterator[Place]:
        """What a value is made of, not what only its sizes are asked of."""
        variable = module.variable(node)
        if not _is_size(node) and getattr(node, "id", "") != module.scope(node).self_name:
            yield from ((module, part) for part in operands(node))
            yield from held(self.graph, module, node)
            yield from returned(self.graph, module, node)
            for write in self.all:
                if variable is not None and variable.scope.is_class and write.variable == whole(variable):
                    yield from ((write.module, part) for part in write.given)

    def _is_of_batch(self, module: Module, node: ast.expr) -> bool:
        variable = module.variable(node) if isinstance(node, ast.Name) else None
        if variable is None or variable.name == module.scope(node).self_name:
            return False
        return self.roles.of(variable) == Role.BATCH or any(map(self._binds_batch, reaching(module, node)))

    def _binds_batch(self, binding: Binding) -> bool:
        if binding.kind == "for" and binding.statement in self.local.loops:
            return not numbers_batches(binding.statement.iter, binding.path)
        is_input = binding.kind == "parameter" and getattr(binding.statement, "name", "") in _RUNS
        return is_input or binding.statement in self.local.losses


def changed_in(module: Module, node: ast.AST) -> tuple[ast.expr | None, list[ast.expr]]:
    """What a node changes in part, with what it puts in."""
    if isinstance(node, ast.AugAssign):
        return _root(node.target), [node.value]
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        root = _root(target)
        variable = module.variable(root) if root is not None else None
        if isinstance(target, ast.Subscript) or root is not target:
            return root, [node.value]
        if variable is not None and _reads(module, node.value, variable):
            return root, [node.value]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and module.qualified(node.func) is None:
        name = node.func.attr
        if name in GROWS or (name.endswith("_") and not name.endswith("__")):
            return _root(node.func.value), all_arguments(node)
    return None, []


def _root(node: ast.expr) -> ast.expr | None:
    """`self.queue` of `self.queue.data[:, i]`, `counts` of `counts.mul_(0.9).add_`: what an object keeps, or a name."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            return node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        elif isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        else:
            return None
    return node


def whole(variable: Variable) -> Variable:
    """The first attribute of an object stands for all below it."""
    parts = variable.name.split(".")
    kept = parts[:2] if parts[0] == "self" and variable.scope.is_class else parts[:1]
    return Variable(variable.scope, ".".join(kept))


def _reads(module: Module, value: ast.expr | None, variable: Variable) -> bool:
    """Whether a value is made of a variable, and not only of its sizes."""
    parts = closure([value] if value is not None else [], lambda part: () if _is_size(part) else operands(part))
    found = (module.variable(part) for part in parts if not _is_size(part))
    return any(each is not None and whole(each) == variable for each in found)


def _is_size(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in _SIZES and isinstance(node, ast.Call | ast.Attribute)


def _is_buffer(module: Module, owner: ast.ClassDef, name: str) -> bool:
    return any(
        calls_method(call, "register_buffer")
        and bool(call.args)
        and isinstance(call.args[0], ast.Constant)
        and call.args[0].value == name
        for call in module.walk(owner, ast.Call)
    )
