"""Results of a model that its training leaves out: the parts that make nothing else get no gradient."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.notes.gradient_paths import is_without_gradient
from accel_migrate.analysis.notes.without_gradient import OwnModule, Without
from accel_migrate.analysis.program.project import Definition
from accel_migrate.analysis.program.scopes import Function, Module, Variable
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role
from accel_migrate.flow.nodes import unparse

_ALWAYS = "always"
Key = int | str


def outputs_left(script: Script, training: Training, model: Variable) -> Iterator[Without]:
    """Parts of a model that no result which the training reads is computed with."""
    forward = _forward(script, model)
    results = _results(*forward) if forward is not None else None
    uses = _uses(script, training, model, list(results)) if results is not None else None
    if forward is None or results is None or not uses:
        return
    module, method = forward
    owner = OwnModule(script.roles, script.graph, Definition(module, _class_of(module, method)), method)
    returned = set(results.values())
    kept = [value for value in owner.paths.results(method) if not _holds_any(module, value, returned)]
    parts = [_own(module, owner.paths.to([result, *kept])) for result in results.values()]
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


def _results(module: Module, forward: Function) -> dict[Key, ast.expr] | None:
    """The results of a forward that always returns as many, by their index or key."""
    returns = [n for n in module.walk(forward, ast.Return) if module.scope(n).function is forward]
    values = [node.value for node in returns if isinstance(node, ast.Return)]
    value = values[0] if len(values) == 1 else None
    if isinstance(value, ast.Tuple) and len(value.elts) > 1:
        return dict(enumerate(value.elts))
    if isinstance(value, ast.Dict) and len(value.keys) > 1:
        keys = [key.value for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
        return dict(zip(keys, value.values)) if len(keys) == len(value.keys) else None
    return None


def _holds_any(module: Module, value: ast.AST, results: set[ast.expr]) -> bool:
    return any(module.holds(value, result) for result in results)


def _own(module: Module, nodes: set[ast.AST]) -> set[str]:
    """The parts of the object among some nodes."""
    names = [(node, module.variable(node)) for node in nodes if isinstance(node, ast.Attribute)]
    return {node.attr for node, variable in names if variable is not None and variable.name == f"self.{node.attr}"}


def _uses(script: Script, training: Training, model: Variable, keys: list[Key]) -> list[str] | None:
    """For each result: always read, read under a condition, or (empty) never; None where that cannot be told."""
    own = {
        v for v in training.aliases if script.roles.of(v) & Role.MODEL and model in chain(script.roles, script.graph, v)
    }
    found: list[str] | None = None
    for module in training.modules:
        for call in module.calls:
            if module.variable(call.func) not in own or not _trains(training, module, call):
                continue
            uses = _uses_of(module, call, keys)
            if uses is None:
                return None
            found = uses if found is None else [_either(a, b) for a, b in zip(found, uses, strict=True)]
    return found


def _trains(training: Training, module: Module, call: ast.Call) -> bool:
    around = set(module.ancestors(call))
    inside = any(loop.trains and loop.statement in around for loop in training.loops)
    beside = any(b.module is module and b.function is module.scope(call).function for b in training.backwards)
    return (inside or beside) and not is_without_gradient(module, call)


def _uses_of(module: Module, call: ast.Call, keys: list[Key]) -> list[str] | None:
    parent = module.parents[call]
    picked = _picked(parent, call, keys)
    if picked is not None:
        return [_ALWAYS if key == picked else "" for key in keys]
    target = parent.targets[0] if isinstance(parent, ast.Assign) and len(parent.targets) == 1 else None
    if isinstance(target, ast.Name):
        return _uses_by_key(module, call, target, keys)
    if not isinstance(target, ast.Tuple) or len(target.elts) != len(keys) or isinstance(keys[0], str):
        return None
    if not all(isinstance(each, ast.Name) for each in target.elts):
        return None
    return [_use(module, call, _reads(module, call, each)) for each in target.elts if isinstance(each, ast.Name)]


def _picked(parent: ast.AST, value: ast.AST, keys: list[Key]) -> Key | None:
    """The result that `value[1]` or `value["logits"]` picks."""
    if not isinstance(parent, ast.Subscript) or parent.value is not value:
        return None
    key: ast.expr = parent.slice
    sign = 1
    if isinstance(key, ast.UnaryOp) and isinstance(key.op, ast.USub):
        key, sign = key.operand, -1
    picked = key.value if isinstance(key, ast.Constant) else None
    if type(picked) is int and type(keys[0]) is int:
        return sign * picked % len(keys)
    return picked if isinstance(picked, str) and picked in keys else None


def _uses_by_key(module: Module, call: ast.Call, name: ast.Name, keys: list[Key]) -> list[str] | None:
    """`outputs = model(x)`, of which each reading picks one result; None where something may read all of them."""
    reads = {read: _picked(module.parents[read], read, keys) for read in _reads(module, call, name)}
    if not reads or None in reads.values():
        return None
    return [_use(module, call, [read for read, picked in reads.items() if picked == key]) for key in keys]


def _reads(module: Module, call: ast.Call, name: ast.Name) -> list[ast.Name]:
    variable = module.variable(name)
    around = module.scope(call).function or module.tree
    return [
        node
        for node in module.walk(around, ast.Name)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and module.variable(node) == variable
    ]


def _use(module: Module, call: ast.Call, reads: list[ast.Name]) -> str:
    around = module.scope(call).function or module.tree
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
