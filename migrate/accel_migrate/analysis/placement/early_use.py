"""What a model is used for between its move to the device and `prepare`: if it runs, or is copied, the move must stay.

So it must where weights are drawn after the move: a GPU draws from a generator of its own.

Uses are followed into the functions of the project, under the names that these have for the model. What cannot be
followed is taken to need the model where it was.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.provenance import Place, chain
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.cfg import Graph, graph_of
from accel_migrate.flow.definitions import calls_at, owner_of
from accel_migrate.flow.nodes import called_name, own_statements
from accel_migrate.flow.scopes import Function, Module, Variable
from accel_migrate.flow.torch_api import ITSELF

# Methods that work on a model wherever it is, and keep nothing of it.
_ANYWHERE = {
    "train", "eval", "to", "cuda", "cpu", "float", "half", "double", "bfloat16", "type", "requires_grad_", "zero_grad",
    "load_state_dict", "share_memory", "compile", "freeze", "unfreeze",
    "parameters", "named_parameters", "modules", "named_modules", "children", "named_children", "buffers",
    "add_module", "register_buffer", "register_module", "register_parameter", "register_forward_hook",
    "gradient_checkpointing_enable", "resize_token_embeddings", "set_", "items", "keys", "numel", "size", "dim",
}  # fmt: skip
# Functions that only look at what they are handed, or change it in its place.
_LOOKS = {
    "print", "len", "isinstance", "type", "str", "repr", "id", "hasattr", "sum", "list", "enumerate", "filter",
    "callable",
}  # fmt: skip
_LOOKS_DOTTED = (
    "torch.nn.init.zeros_", "torch.nn.init.ones_", "torch.nn.init.constant_", "torch.nn.utils.", "wandb.watch",
    "logging.",
)  # fmt: skip
_DRAWS = re.compile(
    r"(xavier|kaiming|glorot|he|trunc|orthogonal|normal|uniform|random|bernoulli|sparse|exponential)\w*_$"
)
_COPIES = {"clone", "deepcopy", "copy", "copy_", "detach", "device", "is_cuda", "numpy", "cpu", "state_dict"}

_MEETS = {"add_", "sub_", "mul_", "div_", "lerp_", "addcmul_", "addcdiv_", "lerp"}


class EarlyUses:
    """Of one training: `place` is where its objects are prepared, `aliases` are all names of these."""

    def __init__(self, graph: CallGraph, aliases: frozenset[Variable], place: Place) -> None:
        self.roles = graph.roles
        self.graph = graph
        self.aliases = aliases
        self.place = place
        self.function = place.module.scope(place.after).function
        self._known: dict[ast.stmt, set[Function]] = {}
        self._ways: dict[ast.AST, list[ast.stmt]] = {}

    def comes_before(self, module: Module, node: ast.AST) -> bool:
        """Whether a node may run while the objects are not prepared yet."""
        statement = module.statement(node)
        function = module.scope(node).function
        if module is self.place.module and function is self.function:
            return not self._is_after(statement)
        ways = self._ways_to_prepare(module, function)
        if ways:
            return not any(self._flow(module, function).dominates(way, statement) for way in ways)
        return function is not None and any(self._calls_before(function))

    def leads_to(self, module: Module, first: ast.stmt, second: ast.stmt) -> bool:
        """Whether a run of one function comes from one statement to another."""
        function = module.scope(first).function
        if function is not module.scope(second).function:
            return False
        return first is second or self._flow(module, function).reachable(first, second)

    def need(self, module: Module, node: ast.AST, model: Iterable[Variable]) -> bool:
        """Whether anything needs a model that a node has moved before it is prepared."""
        names = set(model)
        same = {link for variable in names for link in chain(self.graph, variable)}
        function = module.scope(node).function
        places = [(module, s) for s in self._between(module, function, module.statement(node))]
        if not (module is self.place.module and function is self.function) and function is not None:
            for call in self._calls_before(function):
                places += [(self.place.module, s) for s in self._between(self.place.module, self.function, call)]
                same |= {alias for alias in self.aliases if self.roles.of(alias) & Role.MODEL}
        if self.function is not None and self._ways_to_prepare(module, function):
            early = [s for s in own_statements(self.function) if s is self.place.after or not self._is_after(s)]
            places += [(self.place.module, statement) for statement in early]
            same |= {alias for alias in self.aliases if self.roles.of(alias) & Role.MODEL}
        handed = isinstance(node, ast.expr) and isinstance(module.parents[node], ast.Call | ast.keyword)
        if handed and self._is_needed(module, node):  # type: ignore[arg-type]
            return True
        return any(self._needs(owner, statement, same) for owner, statement in places)

    def run_before(self) -> set[Function]:
        """Functions that are called, also or only, while the objects are not prepared yet."""
        module = self.place.module
        flow = self._flow(module, self.function)
        found: set[Function] = set()
        for statement in own_statements(self.function or module.tree):
            if flow.holds(statement) and not self._is_after(statement):
                found |= self._reached(module, statement)
        return found

    # ---- where

    def _flow(self, module: Module, function: Function | None) -> Graph:
        return graph_of(module.tree, function or module.tree)

    def _is_after(self, statement: ast.stmt) -> bool:
        """Whether a statement beside `prepare` runs only once all is prepared; what an `if` before it holds does not."""
        module, after = self.place.module, self.place.after
        inside = statement is not after and module.holds(after, statement)
        return not inside and self._flow(module, self.function).dominates(after, statement)

    def _between(self, module: Module, function: Function | None, start: ast.stmt) -> Iterator[ast.stmt]:
        """Statements that a run can come to after `start` without having prepared."""
        flow = self._flow(module, function)
        here = module is self.place.module and function is self.function
        ways = [] if here else self._ways_to_prepare(module, function)
        for statement in own_statements(function or module.tree):
            if flow.holds(statement) and statement is not start and flow.reachable(start, statement):
                prepared = self._is_after(statement) if here else any(flow.dominates(way, statement) for way in ways)
                if statement is self.place.after or not prepared:
                    yield statement

    def _ways_to_prepare(self, module: Module, function: Function | None) -> list[ast.stmt]:
        """Statements of another function that call the one which prepares."""
        if self.function is None:
            return []
        scope = function or module.tree
        if scope not in self._ways:
            self._ways[scope] = [s for s in own_statements(scope) if self.function in self._reached(module, s)]
        return self._ways[scope]

    def _calls_before(self, function: Function) -> Iterator[ast.stmt]:
        """Statements beside `prepare`, not after it, that call a function."""
        module = self.place.module
        flow = self._flow(module, self.function)
        for statement in own_statements(self.function or module.tree):
            if flow.holds(statement) and function in self._reached(module, statement):
                if not self._is_after(statement):
                    yield statement

    def _reached(self, module: Module, statement: ast.stmt) -> set[Function]:
        """Functions and constructors that a statement, without those that stand in it, may run."""
        if statement not in self._known:
            self._known[statement] = self._find_reached(module, statement)
        return self._known[statement]

    def _find_reached(self, module: Module, statement: ast.stmt) -> set[Function]:
        found: set[Function] = set()
        for call in calls_at(module).get(statement, ()):
            if (run := self.roles.run_by(module, call)) is not None:
                found |= {run.node} | self.graph.reached_from(run.node, run.module)
        return found

    # ---- what

    def _needs(self, module: Module, statement: ast.stmt, model: set[Variable]) -> bool:
        named = module.walk(statement, ast.Name, ast.Attribute)
        own = [node for node in named if owner_of(module, node) is statement]
        if any(self._is_needed(module, node) for node in self._mentions(module, own, model)):
            return True
        for function in self._reached(module, statement):
            owner = self.roles.project.module_of(function)
            if any(
                self._is_needed(owner, node)
                for node in self._mentions(owner, owner.walk(function, ast.Name, ast.Attribute), model)
            ):
                return True
        return False

    def _mentions(self, module: Module, nodes: Iterable[ast.AST], model: set[Variable]) -> Iterator[ast.expr]:
        """Where the model is read, under its own name or one that it was handed over to."""
        for node in nodes:
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                variable = module.variable(node)
                if not model.isdisjoint(chain(self.graph, variable)):
                    yield node

    def _is_needed(self, module: Module, node: ast.expr) -> bool:
        """Whether a read of the model does more with it than look, or change it in its place."""
        whole: ast.expr = node
        parent = module.parents[node]
        while isinstance(parent, ast.Attribute | ast.Subscript) and parent.value is whole:
            whole, parent = parent, module.parents[parent]  # `model.encoder`, `model[0]`
        if isinstance(whole, ast.Attribute | ast.Subscript) and isinstance(whole.ctx, ast.Store | ast.Del):
            return False
        if isinstance(parent, ast.Call) and parent.func is whole:
            if whole is node or not isinstance(whole, ast.Attribute):
                return True
            if whole.attr in ITSELF and isinstance(module.parents[parent], ast.Call | ast.keyword | ast.Attribute):
                return self._is_needed(module, parent)  # `summary(model.cuda())`
            in_place = whole.attr in _ANYWHERE or (whole.attr.endswith("_") and not _DRAWS.match(whole.attr))
            return not in_place or _is_copied(self.roles, module, parent)
        if isinstance(parent, ast.Call | ast.keyword):
            call = parent if isinstance(parent, ast.Call) else module.parents[parent]
            return isinstance(call, ast.Call) and not self._only_looks(module, call)
        if isinstance(parent, ast.Assign | ast.AnnAssign):
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            return not all(module.variable(target) in self.aliases for target in targets)
        return not isinstance(parent, ast.Return | ast.Compare | ast.FormattedValue | ast.Expr | ast.If | ast.BoolOp)

    def _only_looks(self, module: Module, call: ast.Call) -> bool:
        dotted = module.full_name(call.func)
        name = called_name(call)
        if self.roles.target(module, call) is not None:
            return True  # what it does is looked up in it
        if name in _LOOKS or dotted.startswith(_LOOKS_DOTTED) or _is_logged(name):
            return True
        if self.roles.role(module, call) & (Role.OPTIMIZER | Role.SCHEDULER):
            return True
        made = module.parents[call]
        stored = made.targets if isinstance(made, ast.Assign) else []
        return bool(stored) and all(module.variable(target) in self.aliases for target in stored)


def _is_logged(name: str) -> bool:
    return name in ("info", "debug", "warning", "log")


def _is_copied(roles: Roles, module: Module, call: ast.Call) -> bool:
    """`[p.clone() for p in model.parameters()]`, also in a loop over them, or under the name that they are kept by.

    So are `p.normal_()` there, and `average.mul_(rate).add_(p)`, which meets what is on the device.
    """
    around = module.statement(call)
    kept = [module.variable(target) for target in around.targets] if isinstance(around, ast.Assign) else []
    read = [node for variable in kept if not roles.of(variable) for node in module.reads(variable)]
    names = {
        n.attr if isinstance(n, ast.Attribute) else getattr(n, "id", "")
        for statement in (around, *map(module.statement, read))
        for n in module.walk(statement)
    }
    return any(name in _COPIES or name in _MEETS or _DRAWS.match(name) for name in names)
