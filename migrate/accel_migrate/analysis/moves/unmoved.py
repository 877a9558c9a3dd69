"""Batches of which the script moves some members and not others: those stay on the CPU, and the loader must not move them.

Lengths for `pack_padded_sequence`, indices for a table on the CPU, texts: what is never moved is used where it is. Such a
loader is prepared with `device_placement` off, and the script's own moves stay.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.moves.batches import casts_to_cpu
from accel_migrate.analysis.values.loops import LoaderLoop
from accel_migrate.analysis.values.provenance import NotMigrated
from accel_migrate.analysis.values.roles import Role, Roles, arguments_of
from accel_migrate.flow.nodes import all_arguments, called_name, unparse, walk
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.torch_api import RESHAPES, is_reshaping

# All that may be done with a batch without a difference between devices; anything else is a read that depends on where it is.
_ANYWHERE = {"shape", "size", "dim", "ndim", "dtype", "numel", "item", "tolist", "cpu", "keys", "__len__", "type"}
_LOOKS = {"len", "print", "isinstance", "type", "str", "repr", "int", "float", "range", "is_tensor"}
_RESHAPES = {*RESHAPES, "get"}
_DRAWS = {"bernoulli", "multinomial", "apply_", "map_"}  # by the CPU's own generator, or by the CPU alone
_DRAWS |= {"normal_", "uniform_", "random_", "bernoulli_", "exponential_", "log_normal_", "cauchy_", "geometric_"}
_DEPTH = 5


@dataclass(eq=False)
class Members:
    """Reads of batches, as far as they can be followed."""

    roles: Roles
    moves: set[ast.Call]
    fetched: set[ast.Call]  # calls for numpy that a prepared loader's batches are brought back to the CPU for
    data_parallel: bool  # which moves what the model is handed
    of_models: bool = False  # only what a model is handed is asked for

    def unmoved(self, loop: LoaderLoop) -> ast.expr | None:
        """The first read of a batch, or of a part of it, that depends on where it is and is not moved."""
        module = loop.module
        for name in _names(loop.statement.target):
            if not self._is_counter(loop, name):
                variable = module.variable(name)
                found = (
                    self._first(module, loop.statement, variable, loop.statement, 0) if variable is not None else None
                )
                if found is not None:
                    return found
        return None

    def check_data_parallel(self, loop: LoaderLoop) -> None:
        """NotMigrated where a wrapper moved the input of the model, and no prepared loader does from now on."""
        read = Members(self.roles, self.moves, self.fetched, False, True).unmoved(loop) if self.data_parallel else None
        if read is not None:
            raise NotMigrated(
                f"`{unparse(read)}` is moved by the wrapper of its model, which goes; move it to the device first",
                (loop.module, loop.statement),
            )

    def _first(
        self, module: Module, within: ast.AST, variable: Variable, bound: ast.stmt, depth: int
    ) -> ast.expr | None:
        for node in module.walk(within, ast.Name):
            if module.variable(node) != variable:
                continue
            changed = module.parents[node]
            if not isinstance(node.ctx, ast.Load) and not isinstance(changed, ast.AugAssign):
                continue
            bindings = reaching(module, node)
            again = any(self._moves(module, b.value) for b in bindings if b.value is not None and b.kind == "assign")
            # `if use_cuda: x = x.cuda()`: moved where there is a GPU
            if again or self._is_moved_in_place(module, within, node, variable):
                continue
            if any(binding.statement is bound for binding in bindings):
                found = self._use(module, node, depth)
                if found is not None:
                    return found
        return None

    def _moves(self, module: Module, value: ast.expr) -> bool:
        return any(node in self.moves for node in module.walk(value))

    def _is_moved_in_place(self, module: Module, within: ast.AST, read: ast.Name, variable: Variable) -> bool:
        """`batch[k] = batch[k].to(device)` for each key, or for the one that is read."""
        parent = module.parents[read]
        key = unparse(parent.slice) if isinstance(parent, ast.Subscript) and parent.value is read else None
        for node in module.walk(within, ast.Assign):
            if not self._moves(module, node.value):
                continue
            for target in node.targets:
                if isinstance(target, ast.Subscript) and module.variable(target.value) == variable:
                    if not isinstance(target.slice, ast.Constant) or unparse(target.slice) == key:
                        return True
        return False

    def _use(self, module: Module, read: ast.expr, depth: int) -> ast.expr | None:
        """The read itself if it is neither moved nor at home anywhere; what becomes of it is followed."""
        told = None if self.of_models else read
        whole, parent = read, module.parents[read]
        while (
            isinstance(parent, ast.Subscript | ast.Attribute | ast.Starred) and getattr(parent, "value", None) is whole
        ):
            call = module.parents[parent]
            back = isinstance(call, ast.Call) and casts_to_cpu(module, call)
            if isinstance(parent, ast.Attribute) and parent.attr in _ANYWHERE and not back:
                return None
            if isinstance(parent, ast.Attribute) and isinstance(call, ast.Call) and call.func is parent:
                if call in self.moves or call in self.fetched:
                    return None
                if back or not self._stays_there(module, call, parent.attr):
                    return told
                parent = call
            whole, parent = parent, module.parents[parent]
        match parent:
            case ast.IfExp() if self._moves(module, parent) or whole is parent.test:
                return None  # `x.cuda() if there_is_a_gpu else x`
            case ast.IfExp():
                return self._use(module, parent, depth + 1) if depth < _DEPTH else read
            case ast.FormattedValue() | ast.JoinedStr() | ast.Expr() | ast.If() | ast.While() | ast.Assert():
                return None
            case ast.BinOp() if self._meets_output(module, [parent.left, parent.right], whole):
                return None
            case ast.AugAssign() if self._is_number(parent.value):
                return None
            case ast.Compare():
                return None if self._may_be_compared(module, parent, whole) else told
            case ast.Call() if whole is not parent.func:
                return self._argument(module, parent, whole, read, depth)
            case ast.comprehension() | ast.For() if self._is_moved_inside(module, parent):
                return None
            case ast.Tuple() | ast.List() if self._is_moved_by_turns(module, parent):
                return None
        statement = module.statement(read)
        if isinstance(statement, ast.Assign) and _is_taken_apart(statement, whole) and depth < _DEPTH:
            return self._assigned(module, statement, depth)
        return told

    def _stays_there(self, module: Module, call: ast.Call, method: str) -> bool:
        """Whether a method of a tensor gives on any device what it gives on the CPU: nothing from elsewhere meets it."""
        given = all_arguments(call)
        if method in _DRAWS or method == "numpy":
            return False
        return method in _RESHAPES or all(
            self._is_number(part) or self._meets_output(module, [part], call) for part in given
        )

    def _may_be_compared(self, module: Module, test: ast.Compare, member: ast.expr) -> bool:
        """With a number, with what the model returned, or only for what it is."""
        if all(isinstance(operator, ast.Is | ast.IsNot | ast.In | ast.NotIn) for operator in test.ops):
            return True
        others = [part for part in (test.left, *test.comparators) if part is not member]
        return all(self._is_number(part) or self._meets_output(module, [part], member) for part in others)

    def _is_number(self, node: ast.expr) -> bool:
        return all(
            isinstance(
                part, ast.Constant | ast.UnaryOp | ast.unaryop | ast.BinOp | ast.operator | ast.Tuple | ast.expr_context
            )
            or (isinstance(part, ast.Attribute) and part.attr in ("float", "long"))
            for part in walk(node)
        )

    def _argument(
        self, module: Module, call: ast.Call, handed: ast.expr, read: ast.expr, depth: int
    ) -> ast.expr | None:
        name = called_name(call)
        if name in _LOOKS or call in self.moves or call in self.fetched:
            return None
        if self._meets_output(module, call.args, handed):
            return None
        dotted = module.full_name(call.func)
        if dotted == "torch.autograd.Variable" or (is_reshaping(dotted) and handed is call.args[0]):
            return self._use(module, call, depth + 1) if depth < _DEPTH else None
        if self.data_parallel and self.roles.role(module, call.func) & Role.MODEL:
            return None
        if self.of_models and self.roles.role(module, call.func) & Role.MODEL:
            return read
        target = self.roles.function(module, call)
        if target is None:
            runs = any(self.roles.role(module, part) & Role.MODEL for part in call.args)
            return read if runs or not self.of_models else None
        for parameter, argument in arguments_of(call, target):
            if argument is handed and depth < _DEPTH:
                return self._first(
                    target.module, target.node, Variable(target.scope, parameter), target.node, depth + 1
                )
        return read

    def _meets_output(self, module: Module, parts: list[ast.expr], member: ast.expr) -> bool:
        """Whether it is set against what the model returned: that is on the device, so whoever does this moves it."""
        return any(part is not member and self.roles.role(module, part) & Role.OUTPUT for part in parts)

    def _assigned(self, module: Module, statement: ast.Assign, depth: int) -> ast.expr | None:
        function = module.scope(statement).function
        for target in statement.targets:
            for name in _names(target):
                variable = module.variable(name)
                found = (
                    self._first(module, function or module.tree, variable, statement, depth + 1)
                    if variable is not None
                    else None
                )
                if found is not None:
                    return found
        return None

    def _is_moved_inside(self, module: Module, loop: ast.comprehension | ast.For) -> bool:
        """`{k: v.to(device) for k, v in batch.items()}`, also with an `if` for what is no tensor."""
        around = module.parents[loop] if isinstance(loop, ast.comprehension) else loop
        return any(node in self.moves for node in module.walk(around))

    def _is_moved_by_turns(self, module: Module, listed: ast.Tuple | ast.List) -> bool:
        """`x, y = [t.to(device) for t in (x, y)]`."""
        loop = module.parents[listed]
        is_loop = isinstance(loop, ast.comprehension | ast.For) and loop.iter is listed
        return is_loop and self._is_moved_inside(module, loop)  # type: ignore[arg-type]

    def _is_counter(self, loop: LoaderLoop, name: ast.Name) -> bool:
        module, looped = loop.module, [loop.statement.iter]
        looped += [b.value for b in module.bindings_of(loop.statement.iter) if b.value is not None]
        counted = any(n.id == "enumerate" for part in looped for n in module.walk(part, ast.Name))
        target = loop.statement.target
        return counted and isinstance(target, ast.Tuple) and target.elts[0] is name


def _is_taken_apart(statement: ast.Assign, value: ast.expr) -> bool:
    """`x, n = batch` and `n = batch["lengths"]`, also beside others: `x, n = batch["x"], batch["n"]`; into names alone."""
    whole = statement.value
    if any(isinstance(part, ast.Attribute | ast.Subscript) for target in statement.targets for part in walk(target)):
        return False
    return whole is value or (isinstance(whole, ast.Tuple | ast.List) and value in whole.elts)


def _names(target: ast.expr) -> Iterator[ast.Name]:
    for node in walk(target):
        if isinstance(node, ast.Name):
            yield node
