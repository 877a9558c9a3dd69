"""Decisions that all processes must take alike: on what they are taken, and where that can be made equal.

A scheduler that waits for a plateau, an end that comes early, the best weights so far. Each is decided on a figure; where
that figure is this process's own, it is averaged over the processes first: where it is one number, and an average of it
says the same. Whether a selection of a batch is empty is no such figure, and stays each process's own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.distribution.rank_flow import RankFlow
from accel_migrate.analysis.processes.local import Locality
from accel_migrate.analysis.processes.timing import Timing
from accel_migrate.analysis.trainings.figure_kinds import FigureKinds
from accel_migrate.analysis.values.loops import LoaderLoop
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import all_arguments, called_name, calls_method, is_none, is_zero, picked
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Binding, Function, Module
from accel_migrate.flow.sequence import follows
from accel_migrate.flow.torch_api import GROWS

_TESTS = {"isnan", "isfinite", "isinf"}  # the average is a number where all are
_TAKES_NUMBERS = {"float", "step", "add_scalar"}
_ASKS_TENSOR = {"item", "detach", "cpu", "tolist"}
_SHOWS = {"print", "write", "info", "debug", "warning", "log", "set_description", "set_postfix", "add_scalar", "flush"}
_MEETS = {"backward", "step", "save", "next", "all_reduce", "all_gather", "broadcast", "barrier"}
_SHARED = Role.MODEL | Role.OPTIMIZER | Role.SCHEDULER | Role.LOADER | Role.LOADERS
_ASKS = {*_TESTS, "abs", "float", "round", "bool", "any", "all"}
Asked = tuple[ast.expr, bool]  # a figure, and whether it may be averaged where it is asked about


@dataclass(frozen=True, eq=False)
class Decision:
    """`figure` is decided on at `node`. It is averaged right after `after`, under its own name, or else in its place."""

    module: Module
    node: ast.stmt
    figure: ast.expr
    after: ast.stmt | None = None
    before: ast.stmt | None = None  # in the place of `after`: right above the decision
    is_tensor: bool = False
    of_tensor: bool = False  # `.item()` of what is known to be a tensor
    is_plain: bool = True  # a number of Python's, for certain
    is_number: bool = True  # else it cannot be averaged, and is only told

    @property
    def place(self) -> ast.AST:
        return self.after or self.before or self.figure


class DecisionFinder:
    """Looks for figures of this process alone that processes decide on."""

    def __init__(self, roles: Roles, local: Locality, loops: list[LoaderLoop], timing: Timing, flow: RankFlow) -> None:
        self.roles = roles
        self.local = local
        self.kinds = FigureKinds(roles, local)
        self.loops = {loop.statement for loop in loops}
        self.rounds = {function for loop in loops for function in local.graph.reached_from(loop.statement, loop.module)}
        self.timing = timing
        self.flow = flow

    def find(self, modules: tuple[Module, ...]) -> Iterator[Decision]:
        found = [(module, *asked) for module in modules for asked in self._asked_in(module)]
        # What a caller averages is alike in the function that is handed it: the callers come first.
        for module, node, tested in sorted(found, key=lambda each: self._is_of_parameter(each[0], each[2])):
            yield from self._at(module, node, tested)

    def _asked_in(self, module: Module) -> Iterator[tuple[ast.stmt, ast.expr]]:
        for node in module.walk(module.tree, ast.If, ast.While, ast.Call):
            if isinstance(node, ast.If | ast.While) and self._decides(module, node):
                yield node, node.test
            elif isinstance(node, ast.Call) and self._steps_scheduler(module, node):
                for argument in all_arguments(node):
                    yield module.statement(node), argument

    def _is_of_parameter(self, module: Module, tested: ast.expr) -> bool:
        names = module.walk(tested, ast.Name)
        return any(binding.kind == "parameter" for name in names for binding in reaching(module, name))

    def _steps_scheduler(self, module: Module, call: ast.Call) -> bool:
        function = call.func
        if not isinstance(function, ast.Attribute) or function.attr != "step" or not (call.args or call.keywords):
            return False
        return bool(self.roles.role(module, function.value) & Role.SCHEDULER)

    def _decides(self, module: Module, node: ast.If | ast.While) -> bool:
        """Whether what depends on a condition is more than what is shown; within a share, whether a round is cut short."""
        if isinstance(node, ast.While):
            return self._meets(module, node)
        if self._inside_share(module, node):
            return self._leads_on(module, node)
        return any(
            not _shows(each) and not self._is_kept_to_show(module, node, each) for each in (*node.body, *node.orelse)
        )

    def _is_kept_to_show(self, module: Module, node: ast.If, statement: ast.stmt) -> bool:
        """`best = loss`, where nothing but this condition and what is shown reads `best`."""
        if not isinstance(statement, ast.Assign) or not all(isinstance(each, ast.Name) for each in statement.targets):
            return False
        reads = [name for each in statement.targets for name in module.reads(module.variable(each))]
        return all(module.holds(node.test, name) or _shows(module.statement(name)) for name in reads)

    def _leads_on(self, module: Module, node: ast.stmt) -> bool:
        """Whether a step, a collective or the end of a round depends on a condition."""
        inner = [*node.body, *node.orelse] if isinstance(node, ast.If | ast.While) else []
        return (
            not inner
            or any(self._cuts_short(module, part) for each in inner for part in module.walk(each))
            or any(
                self._collects(owner, part)
                for statement in inner
                for owner, around in self._run_by(module, statement)
                for part in owner.walk(around, ast.Call)
            )
        )

    def _cuts_short(self, module: Module, node: ast.AST) -> bool:
        """Whether something ends a round in which processes meet: not that of an inner loop which only counts."""
        if isinstance(node, ast.Break | ast.Continue):
            return self._meets(module, module.innermost(node))
        if isinstance(node, ast.Return) and not self._ends_share(module, node):
            return self._meets_behind(module, node)
        return _leaves(node)

    def _ends_share(self, module: Module, left: ast.Return) -> bool:
        """Whether a function is left in the middle of a share of its own."""
        function = module.scope(left).function
        return any(above in self.loops and module.scope(above).function is function for above in module.ancestors(left))

    def _meets_behind(self, module: Module, left: ast.Return) -> bool:
        """Whether processes meet in a function below where it is left, or above that in the same loop."""
        function = module.scope(left).function
        if function is None or (function not in self.rounds and not is_none(left.value or ast.Constant(None))):
            return True
        following: list[ast.stmt] = []
        inner: ast.AST = left
        for above in module.ancestors(left):
            if isinstance(above, ast.For | ast.While):
                following.append(above)
            elif isinstance(inner, ast.stmt) and inner is not left:
                block = module.block(inner)
                following += block[block.index(inner) + 1 :]
            if above is function:
                break
            inner = above
        told = function not in self.rounds and any(_keeps(module, statement) for statement in following)
        return told or any(self._meets(module, statement) for statement in following)

    def _collects(self, module: Module, call: ast.AST) -> bool:
        """Whether all processes must take part in a call: a model is run, or its weights are collected."""
        if not isinstance(call, ast.Call):
            return False
        of = call.func.value if calls_method(call, "state_dict") else call.func
        return bool(self.roles.role(module, of) & Role.MODEL)

    def _meets(self, module: Module, loop: ast.stmt) -> bool:
        """Whether processes meet in a loop: it trains, runs or saves a model, or reads a loader, itself or in what it calls."""
        return any(
            part in self.loops
            or (isinstance(part, ast.Call) and called_name(part) in _MEETS)
            or (isinstance(part, ast.Name | ast.Attribute) and self.roles.role(owner, part) & _SHARED)
            for owner, around in self._run_by(module, loop)
            for part in owner.walk(around)
        )

    def _run_by(self, module: Module, statement: ast.AST) -> list[tuple[Module, ast.AST]]:
        """A statement, and every function that it calls."""
        reached = self.local.graph.reached_from(statement, module)
        owners = self.roles.project.modules
        return [(module, statement), *((owner, each) for owner in owners for each in reached & owner.functions.keys())]

    def _at(self, module: Module, node: ast.stmt, tested: ast.expr) -> Iterator[Decision]:
        if not self.timing.after_prepare(module, node) or not self.local.is_local(module, tested):
            return
        if self.flow.only_some(module, node):
            return  # not every process comes by, so none may meet another here
        # What is set from a figure is as much alike as the figure: the sources come first.
        asked = self._figures(module, tested, compared=not isinstance(node, ast.If | ast.While))
        figures = [figure for figure, _ in asked]
        for figure, may_average in sorted(asked, key=lambda each: self._is_set_from(module, each[0], figures)):
            if not self.local.is_local(module, figure):
                continue
            if may_average and self.kinds.is_number(module, figure) and self._says_the_same(module, node, figure):
                yield self._decision(module, node, figure)
            elif self._leads_on(module, node):
                yield Decision(module, node, figure, is_number=False)

    def _says_the_same(self, module: Module, node: ast.stmt, figure: ast.expr) -> bool:
        """Whether the average of a figure decides what the figure of all data would.

        In a round only the loss leaves steps out: a count of rows keeps a process from a mean over none of its own.
        """
        if not self._inside_round(module, node) or self.kinds.is_of_loss(module, figure):
            return True
        return self.kinds.is_of_loss(module, figure, or_mean=True) and not self._skips(module, node)

    def _skips(self, module: Module, node: ast.stmt) -> bool:
        """Whether a step may be left out in a round that goes on."""
        return any(
            isinstance(part, ast.Continue)
            or (isinstance(part, ast.Return) and not self._ends_share(module, part))
            or (
                isinstance(part, ast.Call)
                and (called_name(part) in ("backward", "step") or self._collects(module, part))
            )
            for part in module.walk(node)
        )

    def _is_set_from(self, module: Module, figure: ast.expr, figures: list[ast.expr]) -> bool:
        """`best` of `best = loss`, where both are asked."""
        others = {module.variable(other) for other in figures if other is not figure} - {None}
        return isinstance(figure, ast.Name) and any(
            module.variable(part) in others
            for binding in reaching(module, figure)
            for part in (module.walk(binding.value) if binding.value is not None else ())
        )

    def _figures(self, module: Module, node: ast.expr, compared: bool = False, is_guard: bool = False) -> list[Asked]:
        """The numbers of this process alone that a condition is made of; `compared` is what can only be a number."""
        if not self.local.is_local(module, node):
            return []
        if isinstance(node, ast.BoolOp):
            return [figure for part in node.values for figure in self._figures(module, part)]
        if isinstance(node, ast.UnaryOp):
            return self._figures(module, node.operand, compared, is_guard)
        if isinstance(node, ast.Compare):
            if any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops):
                return []  # whether there is such a thing, not how large it is
            sides = [node.left, *node.comparators]
            guards = any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops) or any(map(is_zero, sides))
            return [figure for part in sides for figure in self._figures(module, part, True, guards)]
        if isinstance(node, ast.Call):
            return self._asked(module, node, is_guard or not compared)
        if isinstance(node, ast.BinOp) and (divided := self._divided(module, node)) is not None:
            return self._figures(module, divided, True, is_guard)
        if isinstance(node, ast.Name) and (told := self._told_before(module, node)) is not None:
            return self._figures(module, told)
        if isinstance(node, ast.Attribute):
            fed = self.local.given_to(module, node.value)
            inner = [figure for given in fed for figure in self._figures(module, given, True, is_guard)]
            return inner or [(node, compared and not is_guard)]
        if isinstance(node, ast.Name) and not compared and not self._is_set_to_own(module, node):
            return []  # `if logger:` of what was only handed figures: whether there is one
        return [(node, compared and not is_guard)]

    def _divided(self, module: Module, node: ast.BinOp) -> ast.Name | None:
        """`total` of `total / len(loader)`: once it is averaged, whatever the script makes of it is alike."""
        total = node.left
        if not isinstance(node.op, ast.Div) or not isinstance(total, ast.Name):
            return None
        if self.local.is_local(module, node.right) or not self.kinds.is_plain(module, total):
            return None
        return total if self._may_be_set(module, total, module.statement(node)) else None

    def _is_set_to_own(self, module: Module, name: ast.Name) -> bool:
        """Whether a name is set to what is this process's own, and not only handed it."""
        return any(
            b.kind == "augment" or (b.value is not None and self.local.is_local(module, b.value))
            for b in reaching(module, name)
        )

    def _asked(self, module: Module, node: ast.Call, is_guard: bool) -> list[Asked]:
        """`math.isfinite(loss)`, `loss.isnan()`, `stopper.step(loss)`: what is asked about."""
        name = called_name(node)
        if name in _ASKS:
            inner = node.args or ([node.func.value] if isinstance(node.func, ast.Attribute) else [])
            tests = any(isinstance(part, ast.Call) and called_name(part) in _TESTS for part in (node, *inner))
            return [figure for part in inner for figure in self._figures(module, part, True, is_guard and not tests)]
        target = self.roles.target(module, node)
        if target is not None and node.args:
            given = [part for part in node.args if self.local.is_local(module, part)]
            return [figure for part in given for figure in self._figures(module, part, True)] or [(node, not is_guard)]
        return [(node, not is_guard)]

    def _told_before(self, module: Module, node: ast.Name) -> ast.expr | None:
        """The condition that a name stands for: `improved = loss < best`."""
        values = [b.value for b in reaching(module, node)]
        if len(values) == 1 and isinstance(values[0], ast.Compare | ast.BoolOp):
            return values[0]
        return None

    def _decision(self, module: Module, node: ast.stmt, figure: ast.expr) -> Decision:
        statement = module.statement(figure)
        plain = self.kinds.is_plain(module, figure)
        if isinstance(figure, ast.Name) and self._may_be_set(module, figure, statement):
            tensor = not plain and self.kinds.holds_tensor(module, figure)
            kept = (plain and self.kinds.is_of_loss(module, figure, or_mean=True)) or self._reads_numbers(
                module, figure, plain, tensor
            )
            made = self._made_outside(module, figure)
            if made is not None and kept:
                self.local.agree([made.target])
                if not made.path and made.value is not None and self.kinds.comes_from_tensor(module, made.value):
                    return Decision(module, node, made.value, of_tensor=True)  # averaged as it is made a number
                return Decision(module, node, figure, after=made.statement, is_tensor=tensor, is_plain=plain)
            if not _is_elif(module, statement) and kept:
                self.local.agree(self._same_from(module, figure, statement))
                return Decision(module, node, figure, before=statement, is_tensor=tensor, is_plain=plain)
        is_tensor = self.kinds.is_tensor(module, figure)
        self.local.agree([figure])
        of_tensor = self.kinds.comes_from_tensor(module, figure)
        return Decision(module, node, figure, is_tensor=is_tensor, of_tensor=of_tensor, is_plain=plain)

    def _same_from(self, module: Module, figure: ast.Name, statement: ast.stmt) -> Iterator[ast.AST]:
        """The reads of a figure in a statement and behind it in its block, as far as nothing has set it anew."""
        variable = module.variable(figure)
        yield from (n for n in module.walk(statement) if module.variable(n) == variable)
        block = module.block(statement)
        for following in block[block.index(statement) + 1 :]:
            for name in module.walk(following, ast.Name):
                if isinstance(name.ctx, ast.Load) and module.variable(name) == variable:
                    bound = reaching(module, name)
                    if bound and not any(follows(module, statement, b.statement) for b in bound):
                        yield name

    def _may_be_set(self, module: Module, figure: ast.Name, statement: ast.stmt) -> bool:
        """Whether a name can be set to its average above a condition: it is asked once, and always holds a number."""
        if isinstance(statement, ast.While) or self._inside_share(module, statement):
            return False
        return not any(is_none(b.value) for b in reaching(module, figure))

    def _reads_numbers(self, module: Module, figure: ast.Name, plain: bool, tensor: bool) -> bool:
        """Whether all who read a figure, or what is set to it, read alike if it is now a float, or a tensor on its own."""
        pending = [module.variable(figure)]
        for variable in pending:
            for name in module.reads(variable):
                others = _set_to(module, name) if isinstance(name, ast.Name) else []
                if others and all(isinstance(other, ast.Name) for other in others):
                    pending += [v for v in map(module.variable, others) if v not in pending]
                elif others or not _takes_number(module.parents[name], plain, tensor):
                    return False
        return True

    def _made_outside(self, module: Module, figure: ast.Name) -> Binding | None:
        """The binding outside of any share by which a figure is complete, if there is one that always holds."""
        bindings = reaching(module, figure)
        outside = [b for b in bindings if not self._inside_share(module, b.statement)]
        last = next((b for b in outside if b.kind == "augment"), None)
        if last is not None:
            return last
        return bindings[0] if len(bindings) == 1 and outside == bindings and bindings[0].kind == "assign" else None

    def _inside_share(self, module: Module, statement: ast.stmt) -> bool:
        """Whether a statement runs once for each batch, in its loop or in a function that the loop calls."""
        if any(parent in self.loops for parent in (statement, *module.ancestors(statement))):
            return True
        function = module.scope(statement).function
        return function in self.rounds or (function is not None and self._is_called_unseen(module, function))

    def _is_called_unseen(self, module: Module, function: Function) -> bool:
        """A function that nothing calls by its name and that trains nothing: the forward of a model, a hook."""
        return not self.local.graph.all_sites.get(function) and not any(
            part in self.loops or (isinstance(part, ast.Call) and called_name(part) == "backward")
            for owner, around in self._run_by(module, function)
            for part in owner.walk(around)
        )

    def _inside_round(self, module: Module, statement: ast.stmt) -> bool:
        """Whether a statement is in a share, or in a loop that makes its batches by itself and trains on each."""
        if self._inside_share(module, statement):
            return True
        loop = _loop_around(module, statement)
        return loop is not None and any(
            called_name(call) == "backward" and _loop_around(module, call) is loop
            for call in module.walk(loop, ast.Call)
        )


def _leaves(node: ast.AST) -> bool:
    """Whether the function or the script ends here, or weights are stepped or stored."""
    if isinstance(node, ast.Return | ast.Raise):
        return True
    return isinstance(node, ast.Call) and called_name(node) in ("exit", "quit", "_exit", "step", "save", "backward")


def _keeps(module: Module, statement: ast.stmt) -> bool:
    """Whether a statement sets or fills what outlives its function: others may decide on it."""
    return any(
        called_name(node) in GROWS
        if isinstance(node, ast.Call)
        else isinstance(getattr(node, "ctx", ast.Store()), ast.Store)
        for node in module.walk(statement, ast.Attribute, ast.Subscript, ast.Global, ast.Nonlocal, ast.Call)
    )


def _shows(statement: ast.stmt) -> bool:
    """Whether a statement only shows something."""
    if isinstance(statement, ast.Pass):
        return True
    if isinstance(statement, ast.Expr):
        return not isinstance(statement.value, ast.Call) or called_name(statement.value) in _SHOWS
    if isinstance(statement, ast.If):
        return all(_shows(inner) for inner in (*statement.body, *statement.orelse))
    return False


def _loop_around(module: Module, node: ast.AST) -> ast.AST | None:
    return next((above for above in (node, *module.ancestors(node)) if isinstance(above, ast.For | ast.While)), None)


def _set_to(module: Module, name: ast.Name) -> list[ast.expr]:
    """What an assignment sets to a name: `best` of `best, waited = loss, 0`."""
    above = module.parents[name]
    if isinstance(above, ast.Assign) and above.value is name:
        return above.targets
    whole = module.parents[above]
    if isinstance(above, ast.Tuple) and isinstance(whole, ast.Assign) and whole.value is above:
        return [picked(target, (above.elts.index(name),)) for target in whole.targets]
    return []


def _takes_number(reader: ast.AST, plain: bool, tensor: bool) -> bool:
    """Whether it is all the same to a reader if it gets a float in the place of a count or a tensor of one number."""
    match reader:
        case ast.Compare(ops=ops):
            return not any(isinstance(op, ast.In | ast.NotIn) for op in ops)
        case ast.FormattedValue(format_spec=ast.JoinedStr(values=[ast.Constant(value=str(spec))])):
            return spec.endswith(("f", "e", "g", "%"))
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            fields = re.findall(r"{[^{}]*}", text)
            return bool(fields) and all(re.search(r":[^{}]*[feg%]}$", each) for each in fields)
        case ast.BinOp(op=ast.Div()):
            return plain
        case ast.Attribute(attr=name):
            return tensor and name in _ASKS_TENSOR
        case ast.Call():
            name = called_name(reader)
            return name in _TAKES_NUMBERS or (tensor and (name == "print" or name in _TESTS))
    return False


def _is_elif(module: Module, statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and module.source.code(statement).startswith("elif")
