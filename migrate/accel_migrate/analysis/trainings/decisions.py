"""Decisions that all processes must take alike: on what they are taken, and where that can be made equal.

A scheduler that waits for a plateau, an end that comes early, the best weights so far. Each is decided on a figure; where
that figure is this process's own, it is averaged over the processes first: where it is one number, and an average of it
says the same. Whether a selection of a batch is empty is no such figure, and stays each process's own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.distribution.rank_flow import RankFlow
from accel_migrate.analysis.processes.local import Locality
from accel_migrate.analysis.processes.timing import Timing
from accel_migrate.analysis.values.loops import LoaderLoop
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Binding, Function, Module, Variable

_NUMBERS = {"item", "float", "mean", "sum", "fsum", "average", "nanmean", "max", "min", "round", "exp", "log", "sqrt"}
_MEANS = {"float", "mean", "fsum", "average", "nanmean", "exp", "log", "sqrt"}
_SAME_KIND = {"item", "detach", "cpu", "clone", "numpy", "sum", "max", "min", "abs", "round"}
_TESTS = {"isnan", "isfinite", "isinf"}  # the average is a number where all are
_TAKES_NUMBERS = {"float", "step", "add_scalar"}
_ASKS_TENSOR = {"item", "detach", "cpu", "tolist"}
_PYTHONS = {"item", "float", "fsum"}
_LEAVES_TORCH = {"item", "tolist", "numpy", "size", "numel", "dim"}
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


def find_decisions(
    roles: Roles,
    local: Locality,
    loops: list[LoaderLoop],
    timing: Timing,
    flow: RankFlow,
    modules: tuple[Module, ...],
) -> tuple[Decision, ...]:
    """Every figure of this process alone that processes decide on."""
    return tuple(_Finder(roles, local, loops, timing, flow).find(modules))


class _Finder:
    def __init__(self, roles: Roles, local: Locality, loops: list[LoaderLoop], timing: Timing, flow: RankFlow) -> None:
        self.roles = roles
        self.local = local
        self.loops = {loop.statement for loop in loops}
        self.rounds = {
            function for loop in loops for function in local.graph.reached_from(loop.statement, roles, loop.module)
        }
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
                for argument in (*node.args, *[keyword.value for keyword in node.keywords]):
                    yield module.statement(node), argument

    def _is_of_parameter(self, module: Module, tested: ast.expr) -> bool:
        names = module.walk(tested, ast.Name)
        return any(binding.kind == "parameter" for name in names for binding in self.local.bound(module, name))

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
        return any(not _shows(statement) for statement in (*node.body, *node.orelse))

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
        if function is None or function not in self.rounds:
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
        return any(self._meets(module, statement) for statement in following)

    def _collects(self, module: Module, call: ast.AST) -> bool:
        """Whether all processes must take part in a call: a model is run, or its weights are collected."""
        if not isinstance(call, ast.Call):
            return False
        of = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "state_dict" else call.func
        return bool(self.roles.role(module, of) & Role.MODEL)

    def _meets(self, module: Module, loop: ast.stmt) -> bool:
        """Whether processes meet in a loop: it trains, runs or saves a model, or reads a loader, itself or in what it calls."""
        return any(
            part in self.loops
            or (isinstance(part, ast.Call) and _name_of(part) in _MEETS)
            or (isinstance(part, ast.Name | ast.Attribute) and self.roles.role(owner, part) & _SHARED)
            for owner, around in self._run_by(module, loop)
            for part in owner.walk(around)
        )

    def _run_by(self, module: Module, statement: ast.AST) -> list[tuple[Module, ast.AST]]:
        """A statement, and every function that it calls."""
        reached = self.local.graph.reached_from(statement, self.roles, module)
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
            if may_average and self._is_number(module, figure) and self._says_the_same(module, node, figure):
                yield self._decision(module, node, figure)
            elif self._leads_on(module, node):
                yield Decision(module, node, figure, is_number=False)

    def _says_the_same(self, module: Module, node: ast.stmt, figure: ast.expr) -> bool:
        """Whether the average of a figure decides what the figure of all data would.

        In a round only the loss leaves steps out: a count of rows keeps a process from a mean over none of its own.
        """
        if not self._inside_round(module, node) or self._is_of_loss(module, figure):
            return True
        return self._is_of_loss(module, figure, or_mean=True) and not self._skips(module, node)

    def _skips(self, module: Module, node: ast.stmt) -> bool:
        """Whether a step may be left out in a round that goes on."""
        return any(
            isinstance(part, ast.Continue)
            or (isinstance(part, ast.Return) and not self._ends_share(module, part))
            or (isinstance(part, ast.Call) and (_name_of(part) in ("backward", "step") or self._collects(module, part)))
            for part in module.walk(node)
        )

    def _is_set_from(self, module: Module, figure: ast.expr, figures: list[ast.expr]) -> bool:
        """`best` of `best = loss`, where both are asked."""
        others = {module.variable(other) for other in figures if other is not figure} - {None}
        return isinstance(figure, ast.Name) and any(
            module.variable(part) in others
            for binding in self.local.bound(module, figure)
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
            guards = any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops) or any(map(_is_zero, sides))
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
        if self.local.is_local(module, node.right) or not self._is_plain(module, total):
            return None
        return total if self._may_be_set(module, total, module.statement(node)) else None

    def _is_set_to_own(self, module: Module, name: ast.Name) -> bool:
        """Whether a name is set to what is this process's own, and not only handed it."""
        return any(
            b.kind == "augment" or (b.value is not None and self.local.is_local(module, b.value))
            for b in self.local.bound(module, name)
        )

    def _asked(self, module: Module, node: ast.Call, is_guard: bool) -> list[Asked]:
        """`math.isfinite(loss)`, `loss.isnan()`, `stopper.step(loss)`: what is asked about."""
        name = _name_of(node)
        if name in _ASKS:
            inner = node.args or ([node.func.value] if isinstance(node.func, ast.Attribute) else [])
            tests = any(isinstance(part, ast.Call) and _name_of(part) in _TESTS for part in (node, *inner))
            return [figure for part in inner for figure in self._figures(module, part, True, is_guard and not tests)]
        target = self.roles.target(module, node)
        if target is not None and node.args:
            given = [part for part in node.args if self.local.is_local(module, part)]
            return [figure for part in given for figure in self._figures(module, part, True)] or [(node, not is_guard)]
        return [(node, not is_guard)]

    def _told_before(self, module: Module, node: ast.Name) -> ast.expr | None:
        """The condition that a name stands for: `improved = loss < best`."""
        variable = module.variable(node)
        values = [b.value for b in self.local.bound(module, node)] if variable is not None else []
        if len(values) == 1 and isinstance(values[0], ast.Compare | ast.BoolOp):
            return values[0]
        return None

    def _decision(self, module: Module, node: ast.stmt, figure: ast.expr) -> Decision:
        statement = module.statement(figure)
        plain = self._is_plain(module, figure)
        if isinstance(figure, ast.Name) and self._may_be_set(module, figure, statement):
            tensor = not plain and self._holds_tensor(module, figure)
            kept = (plain and self._is_of_loss(module, figure, or_mean=True)) or self._reads_numbers(
                module, figure, plain, tensor
            )
            made = self._made_outside(module, figure)
            if made is not None and kept:
                self.local.agree([made.target])
                if not made.path and made.value is not None and self._of_tensor(module, made.value):
                    return Decision(module, node, made.value, of_tensor=True)  # averaged as it is made a number
                return Decision(module, node, figure, after=made.statement, is_tensor=tensor, is_plain=plain)
            if not _is_elif(module, statement) and kept:
                self.local.agree(self._same_from(module, figure, statement))
                return Decision(module, node, figure, before=statement, is_tensor=tensor, is_plain=plain)
        is_tensor = self._is_tensor(module, figure)
        self.local.agree([figure])
        of_tensor = self._of_tensor(module, figure)
        return Decision(module, node, figure, is_tensor=is_tensor, of_tensor=of_tensor, is_plain=plain)

    def _same_from(self, module: Module, figure: ast.Name, statement: ast.stmt) -> Iterator[ast.AST]:
        """The reads of a figure in a statement and behind it in its block, as far as nothing has set it anew."""
        variable = module.variable(figure)
        yield from (n for n in module.walk(statement) if module.variable(n) == variable)
        block = module.block(statement)
        for following in block[block.index(statement) + 1 :]:
            for name in module.walk(following, ast.Name):
                if isinstance(name.ctx, ast.Load) and module.variable(name) == variable:
                    bound = self.local.bound(module, name)
                    if bound and all(b.statement.lineno < statement.lineno for b in bound):
                        yield name

    def _may_be_set(self, module: Module, figure: ast.Name, statement: ast.stmt) -> bool:
        """Whether a name can be set to its average above a condition: it is asked once, and always holds a number."""
        if isinstance(statement, ast.While) or self._inside_share(module, statement):
            return False
        variable = module.variable(figure)
        bound = self.local.bound(module, figure) if variable is not None else []
        return not any(isinstance(b.value, ast.Constant) and b.value.value is None for b in bound)

    def _reads_numbers(self, module: Module, figure: ast.Name, plain: bool, tensor: bool) -> bool:
        """Whether all who read a figure, or what is set to it, read alike if it is now a float, or a tensor on its own."""
        pending = [module.variable(figure)]
        for variable in pending:
            for name in module.walk(module.tree, ast.Name) if variable is not None else ():
                if module.variable(name) != variable or not isinstance(name.ctx, ast.Load):
                    continue
                others = _set_to(module, name)
                if others and all(isinstance(other, ast.Name) for other in others):
                    pending += [v for v in map(module.variable, others) if v not in pending]
                elif others or not _takes_number(module.parents[name], plain, tensor):
                    return False
        return True

    def _made_outside(self, module: Module, figure: ast.Name) -> Binding | None:
        """The binding outside of any share by which a figure is complete, if there is one that always holds."""
        variable = module.variable(figure)
        assert variable is not None
        bindings = self.local.bound(module, figure)
        outside = [b for b in bindings if not self._inside_share(module, b.statement)]
        last = [b for b in outside if b.kind == "augment"]
        if last:
            return max(last, key=lambda b: b.statement.lineno)
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
            part in self.loops or (isinstance(part, ast.Call) and _name_of(part) == "backward")
            for owner, around in self._run_by(module, function)
            for part in owner.walk(around)
        )

    def _inside_round(self, module: Module, statement: ast.stmt) -> bool:
        """Whether a statement is in a share, or in a loop that makes its batches by itself and trains on each."""
        if self._inside_share(module, statement):
            return True
        loop = _loop_around(module, statement)
        return loop is not None and any(
            _name_of(call) == "backward" and _loop_around(module, call) is loop for call in module.walk(loop, ast.Call)
        )

    def _is_number(self, module: Module, node: ast.expr, depth: int = 0) -> bool:
        """Whether a value is one number that was made of losses or outputs, such as can be averaged over processes."""
        if depth > 8:
            return False
        if isinstance(node, ast.BinOp):
            return all(
                isinstance(part, ast.Constant)
                or not self.local.is_local(module, part)
                or self._is_number(module, part, depth + 1)
                for part in (node.left, node.right)
            )
        if isinstance(node, ast.Call):
            return self._gives_number(module, node, depth)
        if isinstance(node, ast.Subscript | ast.Attribute):  # an entry of what is kept of each batch, or of a meter
            root: ast.expr = node
            while isinstance(root, ast.Subscript | ast.Attribute):
                root = root.value
            return bool(self.local.given_to(module, root))
        if not isinstance(node, ast.Name):
            return False
        variable = module.variable(node)
        found = False
        for binding in self.local.bound(module, node) if variable is not None else ():
            if binding.target in self.local.loss_names:
                found = True
            elif binding.kind in ("augment", "parameter"):
                given = self._given_by(module, binding, variable)
                if not all(self._is_number(owner, value, depth + 1) for owner, value in given):
                    return False
                found = True
            elif binding.kind != "assign" or binding.value is None:
                return False
            elif self.local.is_local(module, binding.value):
                if not self._is_number(module, binding.value, depth + 1):
                    return False
                found = True
        return found

    def _given_by(self, module: Module, binding: Binding, variable: Variable | None) -> list[tuple[Module, ast.expr]]:
        """What of this process's own a sum is given, or callers hand over."""
        if isinstance(binding.statement, ast.AugAssign):
            values = [(module, binding.statement.value)]
        elif binding.kind == "parameter" and variable is not None:
            values = self.local.graph.handed(variable)
        else:
            values = [(module, binding.value)] if binding.value is not None else []
        return [(owner, value) for owner, value in values if self.local.is_local(owner, value)]

    def _is_of_loss(
        self, module: Module, node: ast.expr, or_mean: bool = False, depth: int = 0, path: tuple[int, ...] = ()
    ) -> bool:
        """Whether a value is the loss or made of it; with `or_mean` also another float, which counts nothing."""
        if depth > 8:
            return False
        node = _picked(node, path)
        match node:
            case ast.Tuple(elts=parts):
                own = [part for part in parts if self.local.is_local(module, part)]
                return all(self._is_of_loss(module, part, or_mean, depth + 1) for part in own)
            case ast.UnaryOp():
                return self._is_of_loss(module, node.operand, or_mean, depth + 1)
            case ast.BinOp():
                if or_mean and isinstance(node.op, ast.Div):
                    return True
                own = [part for part in (node.left, node.right) if self.local.is_local(module, part)]
                made = [self._is_of_loss(module, part, or_mean, depth + 1) for part in own]
                return any(made) if or_mean else bool(made) and all(made)
            case ast.GeneratorExp() | ast.ListComp():
                return self._is_of_loss(module, node.elt, or_mean, depth + 1)
            case ast.Call():
                return self._call_of_loss(module, node, or_mean, depth, path)
            case ast.Subscript() | ast.Attribute() if module.variable(node) is None:
                root: ast.expr = node
                while isinstance(root, ast.Subscript | ast.Attribute):
                    root = root.value
                given = self.local.given_to(module, root)
                return bool(given) and all(self._is_of_loss(module, part, or_mean, depth + 1) for part in given)
        variable = module.variable(node)
        if variable is None:
            return False
        held = [b for b in self.local.bound(module, node) if b.target not in self.local.loss_names]
        sources = [(owner, value, b.path) for b in held for owner, value in self._given_by(module, b, variable)]
        sources += [(module, part, ()) for part in self.local.given_to(module, node)]
        return (bool(sources) or len(held) < len(self.local.bound(module, node))) and all(
            self._is_of_loss(owner, value, or_mean, depth + 1, picked) for owner, value, picked in sources
        )

    def _call_of_loss(self, module: Module, node: ast.Call, or_mean: bool, depth: int, path: tuple[int, ...]) -> bool:
        name = _name_of(node)
        if self.roles.role(module, node.func) & Role.CRITERION:
            return True
        dotted = module.qualified(node.func) or ""
        if dotted.startswith("torch.nn.functional.") and name.endswith(("loss", "entropy", "div")):
            return True
        target = self.roles.target(module, node)
        if target is not None and not isinstance(target.node, ast.ClassDef):
            made = [value for value in target.returned if self.local.is_local(target.module, value)]
            return bool(made) and all(
                self._is_of_loss(target.module, value, or_mean, depth + 1, path) for value in made
            )
        if or_mean and name in _MEANS:
            return True
        if name not in _SAME_KIND | _MEANS:
            return False
        method = isinstance(node.func, ast.Attribute) and not dotted
        inner = [node.func.value] if method and isinstance(node.func, ast.Attribute) else node.args[:1]
        return bool(inner) and all(self._is_of_loss(module, part, or_mean, depth + 1) for part in inner)

    def _is_plain(self, module: Module, node: ast.expr, depth: int = 0) -> bool:
        """Whether a figure is known to be a number of Python's and not a tensor."""
        if depth > 8 or not self.local.is_local(module, node):
            return depth <= 8 and not self._holds_tensor(module, node)
        if isinstance(node, ast.BinOp):
            return all(self._is_plain(module, part, depth + 1) for part in (node.left, node.right))
        if isinstance(node, ast.Call):
            if _name_of(node) in _PYTHONS:
                return True
            target = self.roles.target(module, node)
            if target is not None and not isinstance(target.node, ast.ClassDef):
                return all(self._is_plain(target.module, value, depth + 1) for value in target.returned)
            return (
                isinstance(node.func, ast.Name)
                and node.func.id in ("sum", "max", "min")
                and all(self._is_plain(module, part, depth + 1) for part in node.args)
            )
        if isinstance(node, ast.Tuple):
            return all(self._is_plain(module, part, depth + 1) for part in node.elts)
        if not isinstance(node, ast.Name):
            return False
        variable = module.variable(node)
        for binding in self.local.bound(module, node) if variable is not None else ():
            if variable is not None and binding.kind == "parameter":
                handed = self.local.graph.handed(variable)
                if not handed or not all(self._is_plain(owner, value, depth + 1) for owner, value in handed):
                    return False
                continue
            made = binding.statement.value if isinstance(binding.statement, ast.AugAssign) else binding.value
            if made is None or not self._is_plain(module, made, depth + 1):
                return False
        return all(self._is_plain(module, given, depth + 1) for given in self.local.given_to(module, node))

    def _gives_number(self, module: Module, node: ast.Call, depth: int) -> bool:
        if _name_of(node) in _NUMBERS:
            method = isinstance(node.func, ast.Attribute) and module.qualified(node.func) is None
            by_row = any(keyword.arg in ("dim", "axis") for keyword in node.keywords)
            return not by_row and (len(node.args) <= (0 if method else 1) or isinstance(node.func, ast.Name))
        target = self.roles.target(module, node)
        if target is None or isinstance(target.node, ast.ClassDef):
            return False
        parts = [part for r in target.returned for part in (r.elts if isinstance(r, ast.Tuple) else [r])]
        local = [part for part in parts if self.local.is_local(target.module, part)]
        return bool(local) and all(self._is_number(target.module, part, depth + 1) for part in local)

    def _of_tensor(self, module: Module, figure: ast.expr) -> bool:
        """`loss.item()`, and not that of an object of the author's own."""
        if not isinstance(figure, ast.Call) or not isinstance(figure.func, ast.Attribute) or figure.func.attr != "item":
            return False
        return self._holds_tensor(module, figure.func.value)

    def _holds_tensor(self, module: Module, node: ast.expr, depth: int = 0) -> bool:
        """Whether a value is known to be a tensor: the loss, what a model, a criterion or torch gives, or made of these."""
        if depth > 8:
            return False
        if isinstance(node, ast.BinOp | ast.Compare):
            sides = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.left, *node.comparators]
            return any(self._holds_tensor(module, side, depth + 1) for side in sides)
        if isinstance(node, ast.Call):
            if (module.qualified(node.func) or "").startswith("torch."):
                return True
            if self.roles.role(module, node.func) & (Role.MODEL | Role.CRITERION):
                return True
            method = node.func if isinstance(node.func, ast.Attribute) else None
            return (
                method is not None
                and method.attr not in _LEAVES_TORCH
                and self._holds_tensor(module, method.value, depth + 1)
            )
        variable = module.variable(node) if isinstance(node, ast.Name) else None
        if variable is None:
            return False
        if self.roles.of(variable) & (Role.OUTPUT | Role.BATCH):
            return True
        made = [b for b in self.local.bound(module, node) if not isinstance(b.value, ast.Constant)]
        handed = self.local.graph.handed(variable) if any(b.kind == "parameter" for b in made) else []
        return bool(made) and all(
            self._binds_tensor(module, binding, depth)
            if binding.kind != "parameter"
            else handed and all(self._holds_tensor(owner, value, depth + 1) for owner, value in handed)
            for binding in made
        )

    def _binds_tensor(self, module: Module, binding: Binding, depth: int) -> bool:
        value = binding.statement.value if isinstance(binding.statement, ast.AugAssign) else binding.value
        if value is None or binding.path:
            return False
        ended = isinstance(value, ast.Call) and _name_of(value) in _LEAVES_TORCH
        return not ended and (binding.target in self.local.loss_names or self._holds_tensor(module, value, depth + 1))

    def _is_tensor(self, module: Module, figure: ast.expr) -> bool:
        """Whether a figure is the tensor that is trained on, and not a number made of it."""
        if not isinstance(figure, ast.Name):
            return False
        variable = module.variable(figure)
        bound = list(reaching(module, figure, variable)) if variable is not None else []
        made = any(isinstance(b.value, ast.Call) and _name_of(b.value) in _PYTHONS for b in bound)  # loss = loss.item()
        return not made and any(
            b.target in self.local.loss_names or (b.kind == "parameter" and self._holds_tensor(module, figure))
            for b in bound
        )


def _leaves(node: ast.AST) -> bool:
    """Whether the function or the script ends here, or weights are stepped or stored."""
    if isinstance(node, ast.Return | ast.Raise):
        return True
    return isinstance(node, ast.Call) and _name_of(node) in ("exit", "quit", "_exit", "step", "save", "backward")


def _shows(statement: ast.stmt) -> bool:
    """Whether a statement only shows something."""
    if isinstance(statement, ast.Pass):
        return True
    if isinstance(statement, ast.Expr):
        return not isinstance(statement.value, ast.Call) or _name_of(statement.value) in _SHOWS
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
        return [_picked(target, (above.elts.index(name),)) for target in whole.targets]
    return []


def _takes_number(reader: ast.AST, plain: bool, tensor: bool) -> bool:
    """Whether it is all the same to a reader if it gets a float in the place of a count or a tensor of one number."""
    match reader:
        case ast.Compare(ops=ops):
            return not any(isinstance(op, ast.In | ast.NotIn) for op in ops)
        case ast.FormattedValue(format_spec=ast.JoinedStr(values=[ast.Constant(value=str(spec))])):
            return spec.endswith(("f", "e", "g", "%"))
        case ast.BinOp(op=ast.Div()):
            return plain
        case ast.Attribute(attr=name):
            return tensor and name in _ASKS_TENSOR
        case ast.Call():
            name = _name_of(reader)
            return name in _TAKES_NUMBERS or (tensor and (name == "print" or name in _TESTS))
    return False


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def _picked(value: ast.expr, path: tuple[int, ...]) -> ast.expr:
    """What is taken out of a tuple that is written down."""
    for index in path:
        if isinstance(value, ast.Tuple | ast.List) and index < len(value.elts):
            value = value.elts[index]
    return value


def _is_elif(module: Module, statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and module.source.code(statement).startswith("elif")


def _name_of(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
