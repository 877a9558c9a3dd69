"""Parts of a model that a forward runs, and that get no gradient all the same: what they compute does not reach the loss."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from accel_migrate.analysis.notes.gradient_paths import GradientPaths, is_without_gradient
from accel_migrate.analysis.placement.respelling import default_of
from accel_migrate.analysis.program.project import Definition
from accel_migrate.analysis.program.scopes import Binding, Function, Variable
from accel_migrate.analysis.values.contents import handed_for
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.made_of import Part, has_weights, is_only_copied, may_reach_any_part
from accel_migrate.analysis.values.roles import Roles
from accel_migrate.flow.nodes import unparse

_SETS_UP = {
    "train",
    "eval",
    "to",
    "cuda",
    "cpu",
    "apply",
    "half",
    "float",
    "load_state_dict",
    "state_dict",
    "register_forward_hook",
}
_HEADS = (
    (re.compile(r"(wide_)?(resnet|resnext)|googlenet|inception|shufflenet|regnet"), "fc"),
    (re.compile(r"vgg|alexnet|densenet|mobilenet|efficientnet|squeezenet|mnasnet|convnext"), "classifier"),
)
_ANY = {"children", "modules", "named_children", "named_modules", "parameters", "named_parameters", "_modules"}


@dataclass(frozen=True, eq=False)
class Without(Part):
    """A part that gets no gradient; `why` goes on a sentence about it."""

    why: str = ""


class OwnModule:
    """A module of the project, with what its forward runs by its own methods."""

    def __init__(self, roles: Roles, graph: CallGraph, owner: Definition, forward: Function) -> None:
        self.roles = roles
        self.graph = graph
        self.module = owner.module
        self.node = owner.node
        self.forward = forward
        self.methods = self._reached()

    def _reached(self) -> list[Function]:
        own = {m.name: m for m in self.node.body if isinstance(m, ast.FunctionDef)}
        found = [self.forward]
        for method in found:
            for node in self.module.walk(method, ast.Attribute):
                called = own.get(node.attr) if isinstance(node, ast.Attribute) else None
                if called is not None and called not in found:
                    found.append(called)
        return found

    @cached_property
    def paths(self) -> GradientPaths:
        assert isinstance(self.node, ast.ClassDef)
        return GradientPaths(self.module, self.node)

    @cached_property
    def _with_gradient(self) -> set[ast.AST]:
        """What gradients come back to, from the results of forward and of whatever else the project calls."""
        assert isinstance(self.node, ast.ClassDef)
        called = [m for m in self.node.body if isinstance(m, ast.FunctionDef) and self._is_read_outside(m.name)]
        return self.paths.to(value for method in (self.forward, *called) for value in self.paths.results(method))

    @cached_property
    def _is_plain(self) -> bool:
        """A module of torch that no other class of the project inherits from: its own methods are all that runs its parts."""
        project = self.roles.project
        if project.base_names(Definition(self.module, self.node)) != {"torch.nn.Module"}:
            return False
        bases = [(m, base) for m in project.modules for c in m.walk(m.tree, ast.ClassDef) for base in c.bases]  # type: ignore[attr-defined]
        inherited = [project.definition(m, base) for m, base in bases]
        return not any(each is not None and each.node is self.node for each in inherited)

    def parts(self) -> Iterator[Without]:
        for variable in self.module.attribute_bindings:
            if variable.scope.node is self.node:
                made, reads = self.made(variable), self.reads(variable)
                why = self._why(variable, made, reads) if made else None
                if why is not None:
                    yield self.without(variable.name.removeprefix("self."), made[0], why)

    def without(self, name: str, made: Binding, why: str) -> Without:
        assert isinstance(self.node, ast.ClassDef)
        return Without(self.module, self.node, name, made.statement.lineno, why)

    def made(self, variable: Variable) -> list[Binding]:
        """Where a part is made, if that is a layer with weights each time, and nothing else asks for it."""
        name = variable.name.removeprefix("self.")
        bindings = self.module.bindings(variable)
        if "." in name or self._is_read_outside(name):
            return []
        known = all(b.value is not None and not b.path and self._has_weights(b.value) for b in bindings)
        return bindings if known else []

    def reads(self, variable: Variable) -> list[ast.AST]:
        return [node for node in self.module.walk(self.node, ast.Attribute) if self._is_load(node, variable)]

    def runs_in_forward_alone(self, variable: Variable) -> bool:
        """Whether forward itself is all that makes something of a part."""
        return all(self._function(n) is self.forward or self.is_harmless(n) for n in self.reads(variable))

    def _is_load(self, node: ast.AST, variable: Variable) -> bool:
        return (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Load)
            and self.module.variable(node) == variable
        )

    def _is_read_outside(self, name: str) -> bool:
        """Whether code of another class, or of none, asks an object for a part of this name."""
        inside = set(self.module.walk(self.node, ast.Attribute))
        return any(
            isinstance(node, ast.Attribute)
            and node.attr == name
            and node not in inside
            and unparse(node.value) != "self"
            for module in self.roles.project.modules
            for node in module.walk(module.tree, ast.Attribute)
        )

    def _has_weights(self, value: ast.expr) -> bool:
        """Whether a value has weights, by itself or by what it is taken from: `nn.Sequential(*list(resnet.children()))`."""
        values = [value]
        for node in self.module.walk(value, ast.Name):
            variable = self.module.variable(node)
            if variable is not None and variable.scope.node is self.module.scope(node).node:
                values += [b.value for b in self.module.bindings(variable) if b.value is not None]
        return any(has_weights(self.roles, self.module, each) for each in values)

    def _why(self, variable: Variable, made: list[Binding], reads: list[ast.AST]) -> str | None:
        head = self._head_left(made, reads)
        if head is not None:
            return head
        running = [node for node in reads if self._function(node) in self.methods and not self._sets_up(node)]
        rest = [node for node in reads if self._function(node) not in self.methods]
        if not running or not all(self.is_harmless(node) for node in rest):
            return None
        if all(self._is_cut_off(node) for node in running):
            return f"runs only where no gradient is recorded ({self._line(running)}), so it gets none"
        if all(self._is_dropped(node) for node in running):
            return f"computes what nothing reads ({self._line(running)}), so it gets no gradient"
        if self._is_plain and not any(node in self._with_gradient for node in running):
            return f"computes nothing that a gradient comes back from ({self._line(running)}), so it gets none"
        tests = {self._option(node, variable) for node in running}
        test = tests.pop() if len(tests) == 1 else None
        if test is not None and not any(self._conditions(binding.statement) for binding in made):
            return f"is used only where `{test}` holds ({self._line(running)}), and gets no gradient elsewhere"
        by_value = [self._decided_by_values(node) for node in running]
        if all(text is not None for text in by_value):
            return f"is used as `{by_value[0]}` decides ({self._line(running)}), and gets no gradient in other steps"
        return None

    def _decided_by_values(self, node: ast.AST) -> str | None:
        """A test on the numbers that forward is handed, or on what it draws, that decides in each step whether a part runs."""
        function = self._function(node)
        given = {a.arg for a in function.args.args[1:]} if function is not None else set()
        for test, _ in self._conditions(node):
            if self._draws(test) or any(self._is_number_of(part, given) for part in self.module.walk(test)):
                return unparse(test)
        loops = [a for a in self.module.ancestors(node) if isinstance(a, ast.For) and self._function(a) is function]
        return next((unparse(loop.iter) for loop in loops if self._draws(loop.iter, "0")), None)

    def _draws(self, test: ast.AST, least: str = "") -> bool:
        """Whether a number is drawn in an expression; with `least`, one that may be as small as that."""
        calls = [node for node in self.module.walk(test) if isinstance(node, ast.Call)]
        drawn = [
            c
            for c in calls
            if (self.module.qualified(c.func) or "").startswith(("random.", "numpy.random.", "torch.rand"))
        ]
        return any(not least or [unparse(a) for a in call.args[:1]] == [least] for call in drawn)

    def _is_number_of(self, node: ast.AST, given: set[str]) -> bool:
        """`x.mean() > 0` of a parameter `x`: a comparison of its numbers, not of its shape."""
        if not isinstance(node, ast.Compare) or not all(
            isinstance(o, ast.Lt | ast.Gt | ast.LtE | ast.GtE) for o in node.ops
        ):
            return False
        return any(
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr in ("mean", "sum", "max", "min", "item", "norm", "std", "any", "all")
            and any(isinstance(name, ast.Name) and name.id in given for name in self.module.walk(call.func.value))
            for call in self.module.walk(node)
        )

    def _head_left(self, made: list[Binding], reads: list[ast.AST]) -> str | None:
        """`self.features = resnet18()` of which layers alone are read: its `fc` is a part, and nothing runs it."""
        value = made[0].value
        name = (self.module.qualified(value.func) or "") if isinstance(value, ast.Call) else ""
        heads = [head for models, head in _HEADS if models.match(name.rpartition(".")[2])]
        parents = [self.module.parents[node] for node in reads]
        asked = {parent.attr for parent in parents if isinstance(parent, ast.Attribute)}
        whole = [parent for parent in parents if not isinstance(parent, ast.Attribute)]
        if not name.startswith("torchvision.models.") or not heads or whole or not reads:
            return None
        if heads[0] in asked or asked & _ANY or asked <= _SETS_UP:
            return None
        return f"is run layer by layer, without its `{heads[0]}`, which gets no gradient"

    def _line(self, nodes: list[ast.AST]) -> str:
        return f"{self.module.source.path.name}:{nodes[0].lineno}"  # type: ignore[attr-defined]

    def _function(self, node: ast.AST) -> Function | None:
        return self.module.scope(node).function

    def _sets_up(self, node: ast.AST) -> bool:
        parent = self.module.parents[node]
        return isinstance(parent, ast.Attribute) and parent.attr in _SETS_UP

    def is_harmless(self, node: ast.AST) -> bool:
        """Whether a read outside of forward makes nothing of a part: `nn.init.zeros_(self.head.weight)`, or a copy."""
        if is_only_copied(self.module, node):
            return True
        asked = isinstance(self.module.parents[node], ast.Attribute)
        return asked and isinstance(self.module.statement(node), ast.Expr) and not self._mentions_any(node)

    def _mentions_any(self, node: ast.AST) -> bool:
        parent = self.module.parents[node]
        return isinstance(parent, ast.Attribute) and parent.attr in _ANY

    def _is_cut_off(self, node: ast.AST) -> bool:
        """Whether it runs under torch.no_grad(), or what it gives is detached at once."""
        if is_without_gradient(self.module, node):
            return True
        call = self.module.parents[node]
        after = self.module.parents[call] if isinstance(call, ast.Call) and call.func is node else None
        return isinstance(after, ast.Attribute) and after.attr in ("detach", "data")

    def _is_dropped(self, node: ast.AST) -> bool:
        """Whether the result of a call has a name that nothing reads, or none."""
        statement = self.module.statement(node)
        if not isinstance(statement, ast.Assign) or not isinstance(self.module.parents[node], ast.Call):
            return False
        names = [part for target in statement.targets for part in self.module.walk(target)]
        if not all(isinstance(part, ast.Name | ast.Tuple | ast.Store) for part in names):
            return False
        kept = {part.id for part in names if isinstance(part, ast.Name)}
        around = self._function(node) or self.module.tree
        return not any(
            isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and each.id in kept
            for each in self.module.walk(around, ast.Name)
        )

    def _conditions(self, node: ast.AST) -> list[tuple[ast.expr, bool]]:
        """The tests that decide on a node in its function, each with the side that the node is on."""
        found: list[tuple[ast.expr, bool]] = []
        inner = node
        for parent in self.module.ancestors(node):
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
                break
            if isinstance(parent, ast.If) and inner is not parent.test:
                found.append((parent.test, inner in parent.body))
            elif isinstance(parent, ast.IfExp) and inner is not parent.test:
                found.append((parent.test, inner is parent.body))
            inner = parent
        return found

    def _option(self, node: ast.AST, part: Variable) -> str | None:
        """The option of the model, if one, that decides whether a part runs; None where it may hold always."""
        for test, holds in self._conditions(node):
            asked = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
            option = asked.left if isinstance(asked, ast.Compare) else asked
            variable = self.module.variable(option)
            if variable is None or variable.scope.node is not self.node or variable == part:
                continue
            if variable.name != "self.training" and self._may_be_otherwise(variable, test, option, holds):
                return unparse(test) if holds else f"not {unparse(test)}"
        loops = [loop for loop in self.module.ancestors(node) if isinstance(loop, ast.For) and self._function(loop)]
        return next((unparse(loop.iter) for loop in loops if self._may_have_no_round(loop.iter)), None)

    def _may_be_otherwise(self, option: Variable, test: ast.expr, asked: ast.expr, holds: bool) -> bool:
        """Whether the project makes an object for which a test on an option is answered otherwise, or may be."""
        given = self._given(option)
        if not all(isinstance(value, ast.Constant) for value in given):
            return True
        return any(
            _answer(test, asked, value.value) not in (holds, None) for value in given if isinstance(value, ast.Constant)
        )

    def _may_have_no_round(self, rounds: ast.expr) -> bool:
        """`range(self.steps)` where the project sets `steps` to 0."""
        if not (isinstance(rounds, ast.Call) and unparse(rounds.func) == "range" and len(rounds.args) == 1):
            return False
        variable = self.module.variable(rounds.args[0])
        if variable is None or variable.scope.node is not self.node:
            return False
        name = variable.name.removeprefix("self.")
        stored = [
            node.value
            for module in self.roles.project.modules
            for node in module.walk(module.tree, ast.Assign)
            if isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Attribute) and target.attr == name for target in node.targets)
        ]
        return any(isinstance(v, ast.Constant) and v.value == 0 for v in (*stored, *self._given(variable)))

    def _given(self, option: Variable) -> list[ast.expr]:
        """What the project gives for an option of the constructor, its default where a call leaves it out."""
        values = [b.value for b in self.module.bindings(option)]
        parameters = [self.module.variable(value) for value in values if isinstance(value, ast.Name)]
        if len(values) != 1 or len(parameters) != 1 or parameters[0] is None:
            return []
        given: list[ast.expr] = [value for _, value in handed_for(self.graph, parameters[0])]
        function = parameters[0].scope.node
        default = default_of(function, parameters[0].name) if isinstance(function, ast.FunctionDef) else None
        if default is not None and len(given) < len(self.graph.sites.get(function, ())):  # type: ignore[call-overload]
            given.append(default)
        return given


def _answer(test: ast.expr, asked: ast.expr, value: object) -> bool | None:
    """What a test says of an option with this value; None where that is not plain."""
    if test is asked:
        return bool(value)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _answer(test.operand, asked, value)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and test.left is asked and len(test.ops) == 1:
        other = test.comparators[0]
        if isinstance(other, ast.Constant) and isinstance(test.ops[0], ast.Eq | ast.Is | ast.NotEq | ast.IsNot):
            return (other.value == value) == isinstance(test.ops[0], ast.Eq | ast.Is)
    return None


def parts_without(roles: Roles, graph: CallGraph, owners: list[Definition]) -> Iterator[Without]:
    """The parts of some modules that run, and get no gradient."""
    for owner in owners:
        forward = roles.project.method(owner, "forward") if isinstance(owner.node, ast.ClassDef) else None
        if forward is None or forward.module is not owner.module or forward.node not in owner.node.body:
            continue
        own = OwnModule(roles, graph, owner, forward.node)  # type: ignore[arg-type]
        if not any(may_reach_any_part(method) for method in own.methods):
            yield from own.parts()
