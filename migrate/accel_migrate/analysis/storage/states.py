"""`state_dict()` of prepared models, of parts of them and of optimizers: all processes collect it, so all must come by.

Where the main process alone calls a function that saves, every process calls it from now on: `if rank == 0: save(model)` becomes
`save(model)`, and `save` collects the weights before all but one process return.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from itertools import pairwise

from accel_migrate.analysis.distribution.rank_flow import RankFlow
from accel_migrate.analysis.processes.timing import Timing
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.provenance import NotMigrated
from accel_migrate.analysis.values.roles import Role, Roles, arguments_of
from accel_migrate.effects import only_reads
from accel_migrate.flow.nodes import all_arguments, calls_method, conjuncts, is_call_of, is_text, unparse
from accel_migrate.flow.program import Definition
from accel_migrate.flow.scopes import Binding, Function, Module, Variable
from accel_migrate.flow.torch_api import itself

_NO_PART = {"weight", "bias", "data", "grad", "config", "training", "device", "dtype", "shape"}
_CHANGES_WEIGHTS = {"load_state_dict", "backward", "step", "copy_"}


@dataclass(frozen=True, eq=False)
class StateTaken:
    """`owner.state_dict()`. Where only some processes come by, all of them collect it before the statement `ahead`.

    `asked` are the conditions around the call that all processes answer alike, and can ask there already. With `lifted`
    guards every process calls the function, collects, and all but the main one return.
    """

    module: Module
    call: ast.Call
    owner: ast.expr
    of_model: bool  # of which the Accelerator is asked; an optimizer gives its own
    ahead: ast.stmt | None = None
    asked: tuple[str, ...] = ()
    lifted: tuple[Lifted, ...] = ()


def states_taken(
    timing: Timing, module: Module, models: frozenset[Variable], optimizers: frozenset[Variable]
) -> Iterator[StateTaken]:
    for call in module.calls:
        function = call.func
        if not isinstance(function, ast.Attribute) or function.attr != "state_dict" or call.args:
            continue
        owner = function.value
        if isinstance(owner, ast.Attribute) and owner.attr == "module":
            owner = owner.value
        of_model = is_same(module, owner, models)
        if not timing.meets(module, call) or not (of_model or module.variable(owner) in optimizers):
            continue
        yield StateTaken(module, call, owner, of_model)


def collected(flow: RankFlow, graph: CallGraph, taken: StateTaken) -> StateTaken:
    """With what makes all processes come by."""
    module, call, owner = taken.module, taken.call, taken.owner
    ahead, function = flow.guard(module, call), module.scope(call).function
    if itself(owner) is not owner and (ahead is not None or (function is not None and flow.some_call(function))):
        raise NotMigrated(
            f"only some processes come by `{unparse(call)}`, because of a condition on the rank, and under FSDP all of them "
            f"must; call `{unparse(owner)}` on every process, in front of the condition",
            (module, call),
        )
    if function is not None and flow.some_call(function):
        lifted = lifted_guards(flow, graph, function)
        first = next((s for s in function.body if not is_text(s)), None)
        if lifted is None or first is None or _returns(module, function):
            raise NotMigrated(
                f"a condition on the rank decides which processes call {function.name}(), and under FSDP all of them must "
                f"come by `{unparse(call)}`; call it on every process, and write on the main one",
                (module, call),
            )
        _check_unchanged(module, call, owner, function)
        ahead = None if all(_may_run_everywhere(module, s) for s in function.body) else first
        return replace(taken, ahead=ahead, lifted=tuple(lifted))
    if ahead is None:
        return taken
    _check_unchanged(module, call, owner, ahead)
    return replace(taken, ahead=ahead, asked=tuple(_asked(flow, module, call, ahead)))


def _may_run_everywhere(module: Module, statement: ast.stmt) -> bool:
    """Whether a statement only names things, or saves or prints, which the Accelerator does once."""
    if isinstance(statement, ast.Assign):
        return all(
            module.qualified(node.func) in ("os.path.join", "pathlib.Path")
            or (calls_method(node, "state_dict", "format"))
            or (is_call_of(node, "str", "int", "dict", "float"))
            for node in module.walk(statement.value, ast.Call)
        ) and all(isinstance(target, ast.Name) for target in statement.targets)
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return is_text(statement)
    call = statement.value
    saves = module.qualified(call.func) == "torch.save" and len(call.args) + len(call.keywords) == 2
    return saves or (is_call_of(call, "print"))


def _returns(module: Module, function: Function) -> bool:
    """Whether a function returns something, so that a process cannot simply leave it."""
    own = [node for node in module.walk(function) if module.scope(node).function is function]
    return any(isinstance(n, ast.Yield | ast.YieldFrom) or (isinstance(n, ast.Return) and n.value) for n in own)


def same_models(graph: CallGraph, held: frozenset[Variable]) -> frozenset[Variable]:
    """Variables that hold a prepared model, or a part of one, under whatever name: its weights are theirs."""
    found = {variable for variable in held if graph.roles.of(variable) & Role.MODEL}
    found |= {part for model in found for part in _built_in(graph.roles, model)}
    owners = {function: module for module in graph.roles.project.modules for function in module.functions}
    calls = [(m, c, Definition(owners[f], f)) for f, sites in graph.sites.items() for m, c in sites]
    goes_over = [each for module in graph.roles.project.modules for each in _listed(graph, module)]
    while True:
        more = {
            variable
            for module in graph.roles.project.modules
            for variable, binding in module.bound()
            if variable not in found and binding.assigned is not None and is_same(module, binding.assigned, found)
        }
        for variable, listed in goes_over:
            if listed and all(is_same(module, each, found) for module, each in listed):
                more.add(variable)
        for module, call, target in calls:
            own = _own_object(target)
            if own is not None and _is_asked(module, call, found):
                more.add(own)
            for name, argument in arguments_of(call, target):
                if is_same(module, argument, found):
                    more.add(Variable(target.scope, name))
        if more <= found:
            return frozenset(found)
        found |= more


def is_same(module: Module, node: ast.expr, models: Set[Variable]) -> bool:
    """`model`, `model.module`, `model.encoder`, `model.module if ddp else model`, `getattr(model, "module", model)`."""
    node = itself(node)
    if isinstance(node, ast.IfExp):
        return is_same(module, node.body, models) or is_same(module, node.orelse, models)
    if is_call_of(node, "getattr"):
        return is_same(module, node.args[0], models)
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    if module.variable(node) in models:
        return True
    is_part = isinstance(node, ast.Attribute) and not (node.attr in _NO_PART or node.attr.startswith("_"))
    return is_part and isinstance(node, ast.Attribute) and is_same(module, node.value, models)


def _listed(graph: CallGraph, module: Module) -> Iterator[tuple[Variable, list[tuple[Module, ast.expr]]]]:
    """`for model in models`, with what the list has: written there, or by those who hand it over."""
    for loop in module.walk(module.tree, ast.For, ast.comprehension):
        variable, read = module.variable(loop.target), module.variable(loop.iter)
        given = graph.handed(read) if read is not None else [(module, loop.iter)]
        if variable is not None:
            lists = [(m, each.elts) if isinstance(each, ast.List | ast.Tuple) else (m, [each]) for m, each in given]
            yield variable, [(m, element) for m, elements in lists for element in elements]


def _own_object(target: Definition) -> Variable | None:
    """`self` of a method."""
    scope = target.scope
    return Variable(scope, scope.instance) if scope.instance and scope.owner_class is scope.parent else None


def _is_asked(module: Module, call: ast.Call, models: Set[Variable]) -> bool:
    """`model.keep()`, and `super().keep()` in a method of it."""
    asked = call.func.value if isinstance(call.func, ast.Attribute) else None
    if is_call_of(asked, "super"):
        function = module.scope(call).function
        around = _own_object(Definition(module, function)) if function is not None else None
        return around in models
    return asked is not None and is_same(module, asked, models)


def _built_in(roles: Roles, model: Variable) -> Iterator[Variable]:
    """`encoder` in `model = Network(encoder)`."""
    module = model.scope.module
    for binding in module.bindings(model):
        call = binding.value
        for part in all_arguments(call) if isinstance(call, ast.Call) else ():
            variable = module.variable(part) if isinstance(part, ast.Name | ast.Attribute) else None
            if variable is not None and roles.of(variable) & Role.MODEL:
                yield variable


def _check_unchanged(module: Module, call: ast.Call, owner: ast.expr, ahead: ast.stmt) -> None:
    """The weights before the guard must be those at the call."""
    if is_changed(module, call, owner, ahead):
        raise NotMigrated(
            f"only some processes come by `{unparse(call)}`, because of a condition on the rank (line {ahead.lineno}), "
            "and the weights are set under that condition; under FSDP all processes must collect them",
            (module, call),
        )


def is_changed(module: Module, call: ast.Call, owner: ast.expr, ahead: ast.stmt) -> bool:
    """Whether the weights may be set between a statement and the call."""
    inside = _from(module, call, ahead)
    bindings: list[Binding] = module.bindings_of(owner)
    rebound = any(binding.statement in inside and binding.statement is not ahead for binding in bindings)
    changed = any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES_WEIGHTS
        for node in inside
    )
    return rebound or changed


def _asked(flow: RankFlow, module: Module, call: ast.Call, ahead: ast.stmt) -> Iterator[str]:
    """What is asked on the way from the guard to the call, as far as all processes can ask it before the guard."""
    path = [call, *module.ancestors(call)]
    path = path[: path.index(ahead if ahead in path else module.parents[ahead]) + 1]
    found = []
    for inner, parent in pairwise(path):
        if not isinstance(parent, ast.If) or inner is parent.test:
            continue
        test = parent.test
        if inner in parent.body:
            inside = _from(module, call, ahead)
            found.append([part for part in conjuncts(test) if _known_to_all(flow, module, part, inside)])
    for parts in reversed(found):
        for part in parts:
            text = module.source.code(part)
            yield f"({text})" if isinstance(part, ast.BoolOp | ast.IfExp | ast.NamedExpr) else text


def _from(module: Module, call: ast.Call, ahead: ast.stmt) -> set[ast.AST]:
    """What may run between a guard and the call: the guard itself, and all below it where it is `if ...: return`."""
    if ahead in module.ancestors(call):
        return set(module.walk(ahead))
    block = module.block(ahead)
    return {node for statement in block[block.index(ahead) :] for node in module.walk(statement)}


def _known_to_all(flow: RankFlow, module: Module, part: ast.expr, inside: set[ast.AST]) -> bool:
    if flow.depends(module, part) or not only_reads(part):
        return False
    for node in module.walk(part):
        bindings = module.bindings_of(node)
        if any(binding.statement in inside for binding in bindings):
            return False
        if isinstance(node, ast.Call) and flow.depends(module, node):
            return False
    return True


@dataclass(frozen=True, eq=False)
class Lifted:
    """A guard whose `parts` go, those that ask for the main process; all of its test, or some of what it asks together."""

    module: Module
    guard: ast.If
    parts: tuple[ast.expr, ...]

    @property
    def is_whole(self) -> bool:
        return self.parts == (self.guard.test,)


def lifted_guards(flow: RankFlow, graph: CallGraph, function: Function) -> list[Lifted] | None:
    """The guards around all calls of a function; None where a call is not alone under one, or its result is used."""
    found = []
    for module, call in graph.sites.get(function, ()):
        if flow.some_call(module.scope(call).function):
            return None
        statement = module.statement(call)
        guard = module.parents[statement]
        if not isinstance(statement, ast.Expr) or statement.value is not call or not isinstance(guard, ast.If):
            return None
        parts = main_parts(flow, module, guard)
        if guard.body != [statement] or guard.orelse or flow.guard(module, call) is not guard or not parts:
            return None
        found.append(Lifted(module, guard, parts))
    return found or None


def main_parts(flow: RankFlow, module: Module, guard: ast.If) -> tuple[ast.expr, ...]:
    """What of a guard's test asks for the main process; empty if some of it depends on the rank in another way."""
    parts = conjuncts(guard.test)
    asking = [part for part in parts if flow.depends(module, part)]
    if not all(flow.picks_main(module, part) for part in asking):
        return ()
    return tuple(asking) if len(asking) < len(parts) else (guard.test,)
