"""A GradScaler that the script keeps by itself: every use of it, with what becomes of that use."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass, field

from accel_migrate.analysis.precision.autocasting import opposite, regions_in
from accel_migrate.analysis.values.loops import Backward, CallGraph
from accel_migrate.analysis.values.provenance import NotMigrated, chain
from accel_migrate.analysis.values.roles import Role, Roles, arguments_of
from accel_migrate.flow.main_guard import asks_for_name
from accel_migrate.flow.nodes import called_name, calls_method, is_none, own_parameters, unparse
from accel_migrate.flow.program import Definition
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Binding, Function, Module, Variable

Test = tuple[Module, ast.expr]  # a condition, with the file it is written in
NOT_VISIBLE = "how the GradScaler is made is not visible to the analysis"
# What a GradScaler may be asked for.
_METHODS = re.compile(r"scale|unscale_|step|update|state_dict|load_state_dict|is_enabled|[gs]et_.*")
_SETTINGS = ("init_scale", "growth_factor", "backoff_factor", "growth_interval")


@dataclass(eq=False)
class Scaling:
    """What a script does with its GradScalers, sorted by what becomes of it."""

    definitions: list[tuple[Module, ast.Call]] = field(default_factory=list)  # GradScaler(...)
    gone: list[tuple[Module, ast.stmt]] = field(default_factory=list)  # definitions, update(), hand-overs
    steps: list[tuple[Module, ast.Call]] = field(default_factory=list)  # scaler.step(optimizer)
    unscaled: list[tuple[Module, ast.Call]] = field(default_factory=list)  # scaler.unscale_(optimizer)
    stored: list[tuple[Module, ast.expr]] = field(default_factory=list)  # scaler.state_dict() in a dictionary
    restored: list[tuple[Module, ast.stmt]] = field(default_factory=list)  # scaler.load_state_dict(...)
    parameters: dict[Function, tuple[Module, str]] = field(default_factory=dict)
    further: dict[Function, list[str]] = field(default_factory=dict)  # parameters of a function for other scalers
    arguments: list[tuple[Module, ast.Call, ast.expr]] = field(default_factory=list)
    choices: list[tuple[Module, ast.If]] = field(default_factory=list)  # with the scaler in one branch only
    condition: Test | None = None  # under which there is a scaler at all

    def settings(self) -> dict[str, ast.expr]:
        """What the first scaler was told beside `enabled`."""
        if not self.definitions:
            return {}
        module, call = self.definitions[0]
        positional = call.args[1:] if module.full_name(call.func).startswith("torch.amp") else call.args
        said = dict(zip(_SETTINGS, positional))
        said |= {k.arg: k.value for k in call.keywords if k.arg in _SETTINGS}
        return said

    def enabled(self) -> list[Test]:
        """The conditions under which a scaler scales; none: always."""
        told = [
            (module, keyword.value)
            for module, call in self.definitions
            for keyword in call.keywords
            if keyword.arg == "enabled" and not (isinstance(keyword.value, ast.Constant) and keyword.value.value)
        ]
        return told[:1] + ([self.condition] if self.condition is not None else [])

    def nodes(self) -> list[ast.AST]:
        """Everything that speaks of a scaler and goes."""
        found: list[ast.AST] = [node for _, node in (*self.gone, *self.unscaled, *self.stored, *self.restored)]
        return [*found, *[call.func for _, call in self.steps], *[node for _, _, node in self.arguments]]

    def modules(self) -> list[Module]:
        return [module for module, _ in (*self.gone, *self.steps, *self.unscaled)]


def find_scaling(graph: CallGraph, backwards: list[Backward]) -> Scaling:
    """Every use of the GradScalers that scale these passes; raises NotMigrated for one that cannot be carried over."""
    found = Scaling()
    named = [backward.module.variable(backward.scaler) for backward in backwards if backward.scaler is not None]
    ends = {link for variable in named for link in chain(graph, variable)}
    scalers = {
        variable
        for variable in graph.roles.known
        if graph.roles.of(variable) & Role.SCALER and not ends.isdisjoint(chain(graph, variable))
    }
    reader = _Uses(graph.roles, backwards, found, scalers)
    for module in graph.roles.project.modules:
        if any(variable.scope.module is module for variable in scalers):
            reader.read(module)
    for module, choice in found.choices:
        _check_choice(module, choice, found, scalers)
    for module, step in found.steps:
        _check_clipping(module, step, found)
    for module, call in found.definitions:
        if call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value == "cpu":
            raise NotMigrated("this GradScaler scales on the CPU, and the Accelerator's on GPUs only", (module, call))
    return found


def _check_clipping(module: Module, step: ast.Call, found: Scaling) -> None:
    """The Accelerator clips gradients at their true size; a script that forgets `unscale_` clips what is scaled."""
    function = module.scope(step).function
    if any(owner is module and module.scope(call).function is function for owner, call in found.unscaled):
        return
    for call in module.calls:
        name = called_name(call)
        if name.startswith(("clip_grad_norm", "clip_grad_value")) and module.scope(call).function is function:
            raise NotMigrated(
                f"`{unparse(call.func)}` clips gradients that are still scaled, and the Accelerator would clip them at their "
                "true size; call scaler.unscale_(optimizer) before it, if that is what was meant",
                (module, call),
            )


def scaling_conditions(scaling: Scaling, backwards: list[Backward]) -> tuple[Test, ...]:
    """What must hold for gradients to be scaled: by the scaler's own word, and by what tells plain passes apart."""
    found = scaling.enabled()
    of_scalers = [choice.test for _, choice in scaling.choices]
    scaled = [backward for backward in backwards if backward.scaler is not None]
    for one, plain in [(one, other) for one in scaled for other in backwards if other.scaler is None]:
        avoided = {unparse(test) for test in guards(plain.module, plain.call)}
        tests = guards(one.module, one.call) if one.module is plain.module else []
        apart = [test for test in tests if unparse(opposite(test)) in avoided]
        if not apart:
            raise NotMigrated(
                "this backward pass is not scaled and another one is, by no condition that both name; the Accelerator "
                "scales all or none",
                (plain.module, plain.call),
            )
        found += [(plain.module, test) for test in apart if test not in of_scalers]
    return tuple(found)


def guards(module: Module, node: ast.AST) -> list[ast.expr]:
    """The tests that hold where a node runs, by what chooses around it in its function."""
    return [choice.test if holds else opposite(choice.test) for choice, holds in module.branches(node)]


class _Uses:
    def __init__(self, roles: Roles, backwards: list[Backward], found: Scaling, scalers: set[Variable]) -> None:
        self.roles = roles
        self.scalers = scalers
        self.found = found
        self.backwards = {backward.scaler for backward in backwards if backward.scaler is not None}
        self.regions = {region.call for module in roles.project.modules for region in regions_in(roles.project, module)}

    def read(self, module: Module) -> None:
        for function, scope in module.functions.items():
            for argument in own_parameters(function):  # type: ignore[arg-type]
                if Variable(scope, argument.arg) in self.scalers:
                    if function in self.found.parameters:
                        self.found.further.setdefault(function, []).append(argument.arg)
                    self.found.parameters.setdefault(function, (module, argument.arg))  # type: ignore[arg-type]
        for node in module.walk(module.tree, ast.Name, ast.Attribute):
            if module.variable(node) in self.scalers and self._is_scaler(module, node):
                if isinstance(node.ctx, ast.Store):
                    self._definition(module, node)
                elif node not in self.backwards:
                    self._use(module, node)

    def _is_scaler(self, module: Module, node: ast.Name | ast.Attribute) -> bool:
        """Whether the name holds the scaler here, and not another object, as in `scaler = StandardScaler()` for the data."""
        variable = module.variable(node)
        assert variable is not None
        others = self._others(module, variable)
        if not others or not isinstance(node, ast.Name):
            return True
        if isinstance(node.ctx, ast.Store):
            return all(other.target is not node for other in others)
        held = reaching(module, node)
        foreign = [binding for binding in held if binding in others]
        if foreign and (len(foreign) < len(held) or node in self.backwards):
            raise NotMigrated(
                f"`{node.id}` may hold what line {foreign[0].statement.lineno} makes, which is no GradScaler; give the two "
                "different names",
                (module, node),
            )
        return not foreign

    def _others(self, module: Module, variable: Variable) -> list[Binding]:
        """What the name is given that is no scaler, by what it is asked for: `scaler.fit_transform(rows)`."""
        unknown = [
            binding
            for binding in module.bindings(variable)
            if isinstance(binding.value, ast.Call) and not self._makes_scaler(module, binding.value)
        ]
        asked = [
            node.value
            for node in (module.walk(module.tree, ast.Attribute) if unknown else ())
            if isinstance(node.value, ast.Name)
            and module.variable(node.value) == variable
            and not _METHODS.fullmatch(node.attr)
        ]
        proven = [reaching(module, node) for node in asked]
        return [binding for binding in unknown if [binding] in proven]

    def _makes_scaler(self, module: Module, call: ast.Call) -> bool:
        return bool(self.roles.role(module, call) & Role.SCALER) and self.roles.target(module, call) is None

    def _definition(self, module: Module, node: ast.expr) -> None:
        statement = module.statement(node)
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or statement.targets[0] is not node:
            raise NotMigrated("the GradScaler is made together with other things", (module, statement))
        value = statement.value
        if isinstance(value, ast.IfExp) and is_none(value.orelse):
            self.found.condition, value = (module, value.test), value.body
        elif isinstance(value, ast.IfExp) and is_none(value.body):
            self.found.condition, value = (module, ast.UnaryOp(ast.Not(), value.test)), value.orelse
        if isinstance(value, ast.Call):
            if not self._makes_scaler(module, value):
                raise NotMigrated(NOT_VISIBLE, (module, statement))
            self.found.definitions.append((module, value))
            guard = module.parents[statement]
            if isinstance(guard, ast.If) and statement in guard.body and self.found.condition is None:
                starts = asks_for_name(guard.test)  # the script's own start is no condition
                if not starts and all(isinstance(other, ast.Assign) and is_none(other.value) for other in guard.orelse):
                    self.found.condition = (module, guard.test)
        elif not is_none(value) and not self.roles.role(module, value) & Role.SCALER:
            raise NotMigrated(NOT_VISIBLE, (module, statement))
        self.found.gone.append((module, statement))

    def _use(self, module: Module, node: ast.expr) -> None:
        parent = module.parents[node]
        if isinstance(parent, ast.Attribute):
            outer = module.parents[parent]
            if isinstance(outer, ast.Call) and outer.func is parent:
                return self._method(module, outer, parent.attr)
        elif isinstance(parent, ast.Call | ast.keyword):
            call = parent if isinstance(parent, ast.Call) else module.parents[parent]
            assert isinstance(call, ast.Call)
            return self._argument(module, call, node)
        elif isinstance(parent, ast.Assign) and parent.value is node:
            return None  # `self.scaler = scaler`, told at its target
        if any(isinstance(p, ast.Call) and p in self.regions for p in module.ancestors(node)):
            return None  # `autocast(enabled=scaler is not None)`
        choice = _test_of(module, node)
        if choice is not None:
            self.found.choices.append((module, choice))
            return None
        raise NotMigrated(f"`{unparse(node)}` is used in a way that has no counterpart", (module, node))

    def _method(self, module: Module, call: ast.Call, method: str) -> None:
        statement = module.statement(call)
        alone = isinstance(statement, ast.Expr) and statement.value is call
        if method == "step" and alone and len(call.args) == 1 and not call.keywords:
            self.found.steps.append((module, call))
        elif method == "update" and alone and not call.args and not call.keywords:
            self.found.gone.append((module, statement))
        elif method == "unscale_" and alone and len(call.args) == 1:
            self.found.unscaled.append((module, call))
        elif method == "load_state_dict" and alone:
            self.found.restored.append((module, statement))
        elif method == "state_dict" and isinstance(module.parents[call], ast.Dict):
            self.found.stored.append((module, call))
        elif method == "state_dict" and isinstance(statement, ast.Assign) and statement.value is call:
            if not isinstance(statement.targets[0], ast.Subscript):
                raise NotMigrated("the scaler's state is kept under a name of its own", (module, call))
            self.found.stored.append((module, call))
        else:
            raise NotMigrated(
                f"scaler.{method}() has no counterpart that is the same in every case; "
                "take it out, or migrate this loop by hand",
                (module, call),
            )

    def _argument(self, module: Module, call: ast.Call, node: ast.expr) -> None:
        target = self.roles.target(module, call)
        if target is not None and isinstance(target.node, ast.ClassDef):
            target = self.roles.project.method(target, "__init__")
        if target is None:
            name = unparse(call.func)
            raise NotMigrated(f"the GradScaler is handed to {name}(), which is not in the files given", (module, call))
        if not any(argument is node for _, argument in arguments_of(call, Definition(target.module, target.node))):
            raise NotMigrated("the GradScaler is handed over with unpacked arguments", (module, call))
        self.found.arguments.append((module, call, node))


def _test_of(module: Module, node: ast.expr) -> ast.If | None:
    """`if scaler:`, `if scaler is not None:` around the node."""
    parent = module.parents[node]
    if isinstance(parent, ast.Compare) and isinstance(parent.ops[0], ast.IsNot) and is_none(parent.comparators[0]):
        node, parent = parent, module.parents[parent]
    return parent if isinstance(parent, ast.If) and parent.test is node else None


def _check_choice(module: Module, choice: ast.If, found: Scaling, scalers: set[Variable]) -> None:
    """Both branches must do the same but for the scaler: then one of them is enough."""
    if not choice.orelse:
        gone = {statement for _, statement in (*found.gone, *found.restored)}
        gone |= {owner.statement(call) for owner, call in (*found.stored, *found.unscaled)}
        if gone.issuperset(choice.body):
            return
        raise NotMigrated("what is done only with a GradScaler cannot be separated from the rest", (module, choice))
    with_scaler = [text for statement in choice.body for text in _plain(module, statement, scalers)]
    without = [text for statement in choice.orelse for text in _plain(module, statement, scalers)]
    if with_scaler != without:
        raise NotMigrated(
            "the branches with and without a GradScaler differ in more than the scaler; write them as one "
            "(GradScaler(enabled=...)) first",
            (module, choice),
        )


def _plain(module: Module, statement: ast.stmt, scalers: Collection[Variable | None]) -> list[str]:
    """The statement as full precision would write it; nothing for `scaler.update()`."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=asked, attr=method), args=given)):
            scaled = asked.args[:1] if calls_method(asked, "scale") else []
            if scaled and method == "backward" and module.variable(asked.func.value) in scalers:  # type: ignore[attr-defined]
                return [f"{unparse(scaled[0])}.backward()"]
            if module.variable(asked) in scalers and method in ("update", "unscale_"):
                return []
            if module.variable(asked) in scalers and method == "step" and given:
                return [f"{unparse(given[0])}.step()"]
    return [unparse(statement)]
