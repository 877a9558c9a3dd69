"""Results of a model that its training leaves out: the parts that make nothing else get no gradient."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.notes.without_gradient import OwnModule, Without, is_without_gradient
from accel_migrate.analysis.program.project import Definition
from accel_migrate.analysis.program.scopes import Function, Module, Variable
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role
from accel_migrate.flow.nodes import unparse

_ALWAYS = "always"


def outputs_left(script: Script, training: Training, model: Variable) -> Iterator[Without]:
    """Parts of a model that no result which the training reads is computed with."""
    forward = _forward(script, model)
    results = _results(*forward) if forward is not None else None
    uses = _uses(script, training, model, len(results)) if results is not None else None
    if forward is None or results is None or not uses:
        return
    module, method = forward
    owner = OwnModule(script.roles, script.graph, Definition(module, _class_of(module, method)), method)
    parts = [_slice(module, method, result) for result in results]
    read = {name for names, use in zip(parts, uses, strict=True) if use == _ALWAYS for name in names}
    for names, use in zip(parts, uses, strict=True):
        for name in sorted(names - read):
            variable = Variable(module.scope(method), f"self.{name}")
            made = owner.made(variable)
            if made and owner.runs_in_forward_alone(variable):
                yield owner.without(name, made[0], _why(use))


def _why(use: str) -> str:
    if not use:
        return "computes what the training leaves out, so it gets no gradient"
    return f"computes what the training reads only where `{use}` holds, and gets no gradient elsewhere"


def _class_of(module: Module, method: Function) -> ast.ClassDef:
    node = module.scope(method).node
    assert isinstance(node, ast.ClassDef)
    return node


def _forward(script: Script, model: Variable) -> tuple[Module, Function] | None:
    for link in chain(script.roles, script.graph, model):
        known = script.roles.known.get(link)
        if known is not None and known.owner is not None and known.module is not None:
            method = script.roles.project.method(Definition(known.module, known.owner), "forward")
            if method is not None and isinstance(method.node, ast.FunctionDef):
                return method.module, method.node
    return None


def _results(module: Module, forward: Function) -> list[ast.expr] | None:
    """The results of a forward that always returns as many."""
    returns = [n for n in module.walk(forward, ast.Return) if module.scope(n).function is forward]
    values = [node.value for node in returns if isinstance(node, ast.Return)]
    value = values[0] if len(values) == 1 else None
    return value.elts if isinstance(value, ast.Tuple) and len(value.elts) > 1 else None


def _uses(script: Script, training: Training, model: Variable, count: int) -> list[str] | None:
    """For each result: always read, read under a condition, or (empty) never; None where that cannot be told."""
    own = {
        v for v in training.aliases if script.roles.of(v) & Role.MODEL and model in chain(script.roles, script.graph, v)
    }
    found: list[str] | None = None
    for module in training.modules:
        for call in module.calls:
            if module.variable(call.func) not in own or not _trains(training, module, call):
                continue
            uses = _uses_of(module, call, count)
            if uses is None:
                return None
            found = uses if found is None else [_either(a, b) for a, b in zip(found, uses, strict=True)]
    return found


def _trains(training: Training, module: Module, call: ast.Call) -> bool:
    around = set(module.ancestors(call))
    inside = any(loop.trains and loop.statement in around for loop in training.loops)
    beside = any(b.module is module and b.function is module.scope(call).function for b in training.backwards)
    return (inside or beside) and not is_without_gradient(module, call)


def _uses_of(module: Module, call: ast.Call, count: int) -> list[str] | None:
    parent = module.parents[call]
    if isinstance(parent, ast.Subscript) and isinstance(parent.slice, ast.Constant) and type(parent.slice.value) is int:
        return [_ALWAYS if index == parent.slice.value % count else "" for index in range(count)]
    target = parent.targets[0] if isinstance(parent, ast.Assign) and len(parent.targets) == 1 else None
    if not isinstance(target, ast.Tuple) or len(target.elts) != count:
        return None
    if not all(isinstance(each, ast.Name) for each in target.elts):
        return None
    return [_use(module, call, each) for each in target.elts if isinstance(each, ast.Name)]


def _use(module: Module, call: ast.Call, name: ast.Name) -> str:
    around = module.scope(call).function or module.tree
    variable = module.variable(name)
    reads = [
        node
        for node in module.walk(around, ast.Name)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and module.variable(node) == variable
    ]
    own = {parent for parent in module.ancestors(call) if isinstance(parent, ast.If)}
    tests = []
    for node in reads:
        guards = [
            p for p in module.ancestors(node) if isinstance(p, ast.If) and p not in own and module.holds(around, p)
        ]
        tests.append(unparse(guards[0].test) if guards and module.statement(node) in guards[0].body else _ALWAYS)
    return tests[0] if len(set(tests)) == 1 else _ALWAYS if tests else ""


def _either(first: str, second: str) -> str:
    return first if first == second or not second else second if not first else _ALWAYS


def _slice(module: Module, forward: Function, result: ast.expr) -> set[str]:
    """The parts of the module that a result may be computed with."""
    found: set[str] = set()
    seen: set[Variable] = set()
    pending: list[ast.AST] = [result]
    for node in pending:
        for part in module.walk(node, ast.Name, ast.Attribute):
            variable = module.variable(part)
            if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self":
                found.add(part.attr)
            elif isinstance(part, ast.Name) and part.id != "self" and variable is not None and variable not in seen:
                seen.add(variable)
                pending += [b.statement for b in module.bindings(variable) if b.statement is not forward]
                pending += [c for c in module.walk(forward, ast.Call) if _feeds(module, c, variable)]
    return found


def _feeds(module: Module, call: ast.AST, variable: Variable) -> bool:
    """`parts.append(x)`: what an object is given comes out of it."""
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and module.variable(call.func.value) == variable
    )
