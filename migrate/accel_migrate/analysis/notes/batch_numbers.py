"""Where a script goes by the number of a batch, of which each process has N times fewer in an epoch.

Silent where the number is only shown, where it is the first batch that counts, and where it is set against the length of
a sharded loader, which is this process's own. Every other use is one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set

from accel_migrate.analysis.evaluation.results import is_length
from accel_migrate.analysis.notes.counts import Counted, Counts, counts_in
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.roles import Role
from accel_migrate.flow.nodes import called_name, calls_method, is_call_of
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.torch_api import is_bar

_SHOWS = re.compile(
    r"add_[a-z]|log|write|plot|print|format|info|debug|warn|set_(description|postfix)|show|save|append|str$"
)


def batch_numbers(script: Script, training: Training) -> list[tuple[Module, ast.expr]]:
    """Each expression that a number of batches decides on, or is computed with, where loaders are sharded."""
    counts = counts_in(script, training)
    found: dict[ast.expr, Module] = {}
    for module, around in _regions(training):
        counters, lists = _counters(module, around), filled(module, around)
        for node in module.walk(around, ast.Name, ast.Attribute) if counters or lists else ():
            variable, parent = module.variable(node), module.parents[node]
            read = parent if variable in lists and isinstance(parent, ast.Call) and is_length(parent) else node
            if variable in counters or read is not node:
                whole = _used(module, read) if isinstance(getattr(node, "ctx", None), ast.Load) else None
                if (
                    whole is not None
                    and not _goes_on(module, whole)
                    and not _is_of_share(module, counts, whole, counters | lists, _of_all_epochs(module, read))
                    and not _is_mean(module, around, whole)
                ):
                    found[whole] = module
    return [(module, node) for node, module in found.items()]


def _regions(training: Training) -> Iterator[tuple[Module, ast.AST]]:
    """The loops over sharded loaders, and for batches that are asked for one by one the loop around the backward pass."""
    shared = [loop for loop in training.loops if training.shares(loop) or training.trains_on_share(loop)]
    yield from ((loop.module, loop.statement) for loop in shared)
    statements = {loop.statement for loop in training.loops}
    for backward in training.backwards:
        around = list(backward.module.ancestors(backward.call))
        inner = next((node for node in around if isinstance(node, ast.For | ast.While)), None)
        if inner is not None and statements.isdisjoint(around):
            yield backward.module, inner
        elif inner is None and backward.function is not None:
            yield backward.module, backward.function


def _counters(module: Module, around: ast.AST) -> set[Variable]:
    """What numbers the batches: the number of `enumerate` or `range`, what each round raises, and what goes on from these."""
    found: set[Variable | None] = set()
    if isinstance(around, ast.For):
        target, text = around.target, module.source.code(around.iter)
        first = target.elts[0] if isinstance(target, ast.Tuple) and "enumerate(" in text else target
        found |= {module.variable(first)} if "enumerate(" in text or "range(" in text else set()
    for node in module.walk(around, ast.AugAssign, ast.Assign):
        if isinstance(node, ast.AugAssign):
            parents = list(module.ancestors(node))
            inner = parents[: parents.index(around)]
            found |= {module.variable(node.target)} if _raises(module, node, inner, found) else set()
        elif isinstance(node, ast.Assign) and _goes_on(module, node.value) and _names(module, node.value, found):
            found |= {module.variable(target) for target in node.targets}
    return {variable for variable in found if variable is not None}


def filled(module: Module, around: ast.AST) -> set[Variable]:
    """Lists from before a loop to which each round appends one thing: their length numbers the batches."""
    found: set[Variable] = set()
    for call in module.walk(around, ast.Call):
        if calls_method(call, "append"):
            variable, statement = module.variable(call.func.value), module.parents[call]
            each_round = module.parents[statement] is around and isinstance(statement, ast.Expr)
            if variable is not None and each_round:
                if not any(module.holds(around, binding.statement) for binding in module.bindings(variable)):
                    found.add(variable)
    return found


def _raises(module: Module, node: ast.AugAssign, inner: list[ast.AST], counters: set[Variable | None]) -> bool:
    """`step += 1` each round, or each so many rounds; not what only some batches count for."""
    variable = module.variable(node.value) if isinstance(node.value, ast.Attribute) else None
    given = variable is not None and not module.bindings(variable)  # `opt.n_critic`
    if not isinstance(node.value, ast.Constant) and not given:
        return False
    return all(
        isinstance(each, ast.With | ast.Try) or (isinstance(each, ast.If) and _names(module, each.test, counters))
        for each in inner
    )


def _names(module: Module, node: ast.expr, variables: set[Variable | None]) -> bool:
    return any(module.variable(part) in variables - {None} for part in module.walk(node, ast.Name, ast.Attribute))


def _goes_on(module: Module, node: ast.expr) -> bool:
    """`done = epoch * len(loader) + i`: the number of a batch over all epochs, and no use of it yet."""
    return _is_linear(module, node) and isinstance(module.parents[node], ast.Assign)


def _of_all_epochs(module: Module, node: ast.expr) -> ast.expr:
    """All of `epoch * len(loader) + i`, which is no number of a batch that is set against a length."""
    while isinstance(parent := module.parents[node], ast.BinOp) and _is_linear(module, parent):
        node = parent
    return node


def _is_linear(module: Module, node: ast.expr) -> bool:
    return all(
        isinstance(part, ast.Name | ast.Attribute | ast.Constant | ast.expr_context | ast.Add | ast.Mult)
        or (isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add | ast.Mult))
        or is_length(part)
        for part in module.walk(node)
    )


def _used(module: Module, node: ast.expr) -> ast.expr | None:
    """The largest expression that a number is used in; None where it is shown, or asked whether it is the first."""
    whole: ast.expr = node
    for parent in module.ancestors(node):
        if isinstance(parent, ast.JoinedStr | ast.Dict) or (
            isinstance(parent, ast.Call) and _SHOWS.match(called_name(parent))
        ):
            return None
        if (
            isinstance(parent, ast.BinOp)
            and isinstance(parent.left, ast.Constant)
            and isinstance(parent.left.value, str)
        ):
            return None  # `"%d" % i`
        if isinstance(parent, ast.Compare):
            return None if _is_first(module, parent) else parent
        if not isinstance(parent, ast.expr | ast.keyword):
            return None if whole is node else whole
        whole = parent if isinstance(parent, ast.expr) else whole
    return None


def _is_first(module: Module, node: ast.Compare) -> bool:
    """`i == 0`, `step > 0`: every process has a first batch."""
    sides = (node.left, *node.comparators)
    zero = any(isinstance(side, ast.Constant) and side.value in (0, None) for side in sides)
    return zero and all(_is_linear(module, side) for side in sides)


def _is_mean(module: Module, around: ast.AST, node: ast.expr) -> bool:
    """`total / (i + 1)`, `sum(losses) / len(losses)`: what the loop adds up, over as many batches as this process has added."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
        return False
    added = {module.variable(each.target) for each in module.walk(around, ast.AugAssign)} | filled(module, around)
    return any(module.variable(part) in added - {None} for part in module.walk(node.left, ast.Name, ast.Attribute))


def lengths_taken_before(script: Script, training: Training) -> list[tuple[Module, ast.expr]]:
    """`total = epochs * len(loader)` above `prepare`, which is read below it: the batches of all processes.

    A schedule that is prepared wants these: what it is made of, and what its own function reads, are left out.
    """
    counts = counts_in(script, training)
    scheduled = {built.variable for built in training.prepared if built.role & Role.SCHEDULER}
    found: list[tuple[Module, ast.expr]] = []
    for module in training.modules:
        for statement in module.walk(module.tree, ast.Assign):
            lengths = [call for call in module.walk(statement.value, ast.Call) if is_length(call)]
            taken = [call for call in lengths if counts.is_shared(module, call.args[0])]
            if taken and counts.counted(module, taken[0]) is Counted.ALL:
                held = {v for target in statement.targets if (v := module.variable(target)) is not None}
                read = [(each, node) for each in training.modules for variable in held for node in each.reads(variable)]
                read = [each for each in read if not (scheduled and _is_inner(module, statement, *each))]
                read = [each for each in read if not _divides_sum(training, *each)]
                read = [(each, node) for each, node in read if not _is_for_bar(each, node)]
                if held.isdisjoint(scheduled) and any(training.timing.after_prepare(*each) for each in read):
                    found.append((module, taken[0]))
    return found


def _divides_sum(training: Training, module: Module, read: ast.AST) -> bool:
    """`total / steps` of what a loop adds up, which is judged by itself (AM605)."""
    added = {
        loop.module.variable(each.target)
        for loop in training.loops
        for each in loop.module.walk(loop.statement, ast.AugAssign)
    }
    parent = module.parents[read]
    if isinstance(parent, ast.Call) and is_call_of(parent, "float"):
        read, parent = parent, module.parents[parent]
    divided = parent.left if isinstance(parent, ast.BinOp) and parent.right is read else None
    if isinstance(parent, ast.AugAssign):
        divided = parent.target
    divides = isinstance(getattr(parent, "op", None), ast.Div) and divided is not None
    return divides and module.variable(divided) in added - {None}  # type: ignore[arg-type]


def _is_for_bar(module: Module, read: ast.AST) -> bool:
    """`tqdm(range(total))`, which moves on for all processes (AM602)."""
    around = [each for each in module.ancestors(read) if isinstance(each, ast.Call)]
    return any(is_bar(module.full_name(call.func)) for call in around)


def _is_inner(module: Module, statement: ast.stmt, reader: Module, read: ast.AST) -> bool:
    """Whether a lambda reads what a statement sets, or a function inside of the statement's own."""
    around, function = module.scope(statement).function, reader.scope(read).function
    inside = around is not None and function is not around and function is not None and module.holds(around, function)
    return inside or any(isinstance(each, ast.Lambda) for each in reader.ancestors(read))


def _is_of_share(
    module: Module, counts: Counts, node: ast.expr, counters: Set[Variable | None], number: ast.expr
) -> bool:
    """Whether a number is set against the length of a sharded loader, taken after `prepare`, by itself or under a name."""
    own = set(module.walk(number))
    calls = [part for part in module.walk(node, ast.Call) if is_length(part) and part not in own]
    lengths: list[ast.AST] = [call for call in calls if module.variable(call.args[0]) not in counters]
    for part in (name for name in module.walk(node, ast.Name) if name not in own):
        variable = module.variable(part)
        values = (
            [binding.value for binding in module.bindings(variable)]
            if variable is not None and variable not in counters
            else []
        )
        lengths += [inner for value in values if value is not None for inner in module.walk(value) if is_length(inner)]
    return any(counts.counted(module, length) is Counted.SHARE for length in lengths)  # type: ignore[arg-type]
