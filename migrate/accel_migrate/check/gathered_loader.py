"""AM955: what is gathered comes from a prepared loader, each value once; what a prepared loader counts is gathered."""

from __future__ import annotations

import ast

from accel_migrate.check.condition import Condition, at_places
from accel_migrate.check.evidence import Evidence, Found, Side, is_accelerator, step_of
from accel_migrate.check.loader_origins import of_every_loader
from accel_migrate.check.shares_counted import (
    GROWS,
    Shares,
    keeps_what_it_gets,
    loops_over,
    only_shows,
    own_names,
    root,
    stored,
)
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module


def _found(evidence: Evidence) -> Found:
    """Gathered values whose batches every process has whole, or that were gathered before."""
    side = evidence.after
    yield from _by_batch(side)
    yield from side.once(Shares).found()
    for file, call in side.asked("gather_for_metrics"):
        if not _over_prepared(side, file, call, set()):
            yield (
                file,
                call,
                f"`{unparse(call)[:60]}` gathers over a loader that is not prepared: each sample would count "
                "once for each process",
            )
        yield from _cut_short(side, file, call)
        yield from _twice(side, file, call)


def _cut_short(side: Side, file: Module, call: ast.Call) -> Found:
    """Rows of a loader that is given `drop_last`: on N processes it leaves out up to N batches, and not the original's one."""
    loops = [above for above in file.ancestors(call) if isinstance(above, ast.For)]
    prepared = {made for loop in loops for made in side.flows.made(file, loop.iter, "prepared")}
    for origin, prepare in side.asked("prepare"):
        given = [argument for at, argument in enumerate(prepare.args) if any(m[1:] == (prepare, at) for m in prepared)]
        for made in (made for argument in given for made in side.flows.made(origin, argument, "loader")):
            begun = [partial for (_, completed), partial in side.completed.items() if completed is made.node]
            options = [k for each in (made.node, *begun) if isinstance(each, ast.Call) for k in each.keywords]
            asked = [option.value for option in options if option.arg == "drop_last"]
            if any(not (isinstance(value, ast.Constant) and not value.value) for value in asked):
                yield (
                    file,
                    call,
                    f"`{unparse(call)[:60]}` gathers rows of a loader that drops its last batch, and on N processes more",
                )
                return


def _by_batch(side: Side) -> Found:
    """Whole batches of what may or may not be prepared; figures of such batches that are not added up, or of others."""
    over: set[ast.For] = set()
    for file, call in side.asked("whole_batches"):
        kinds = {made.kind for given in call.args for made in side.flows.made(file, given)}
        alike = _is_prepared(side, file, call.args[0]) if "prepared" in kinds else "loader" in kinds
        if not (alike or (kinds & {"prepared", "loader"} and _is_chosen(file, call))):
            yield (
                file,
                call,
                f"`{unparse(call)[:60]}` may be of a loader that is not prepared, or of none",
            )
        loops = loops_over(file, call)
        if not loops:
            yield file, call, f"`{unparse(call)[:60]}` is not what a loop goes over"
        over.update(loops)
        for node in (node for loop in loops for node in walk(loop)):
            if any(_grows(file, loop, node) and not _is_added_up(file, loop, node) for loop in loops):
                yield file, node, f"`{unparse(node)[:60]}` counts this process's batches only"
        for loop in loops:
            yield from _divided_by_rounds(file, loop)
            yield from _of_one_process(file, loop)
            yield from _left_early(file, loop)
            yield from _divided_by_shard(side, file, loop, call)
    for file, call in side.asked("sum_for_metrics"):
        if over.isdisjoint(file.ancestors(call)):
            yield file, call, f"`{unparse(call)[:60]}` stands outside of a loop over whole batches"


def _is_chosen(file: Module, call: ast.Call) -> bool:
    """`loaders[phase] if phase == "train" else accelerator.whole_batches(loaders[phase])`: only the first is prepared."""
    choice = file.parents[call]
    return isinstance(choice, ast.IfExp) and choice.orelse is call and unparse(choice.body) == unparse(call.args[0])


def _divided_by_rounds(file: Module, loop: ast.For) -> Found:
    """A figure over the number of rounds, which is not that of the batches."""
    if not isinstance(loop.target, ast.Tuple) or not isinstance(loop.target.elts[0], ast.Name):
        return
    for node in walk(loop):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.FloorDiv):
            if any(isinstance(n, ast.Name) and n.id == loop.target.elts[0].id for n in walk(node.right)):
                if "enumerate" in unparse(loop.iter):
                    yield file, node, f"`{unparse(node)[:60]}` is divided by the rounds of this process"


def _divided_by_shard(side: Side, file: Module, loop: ast.For, over: ast.Call) -> Found:
    """A sum over all batches over the length of the prepared loader, which is of this process's batches."""
    prepared = {made for given in over.args for made in side.flows.made(file, given, "prepared")}
    sums = {unparse(node.target) for node in walk(loop) if isinstance(node, ast.AugAssign)}
    graph = side.graph(file.scope(loop))
    for node in walk(file.scope(loop).frame.node):
        match node:
            case ast.BinOp(left=sum_, op=ast.Div(), right=by) | ast.AugAssign(target=sum_, op=ast.Div(), value=by):
                lengths = [n.args[0] for n in walk(by) if isinstance(n, ast.Call) and unparse(n.func) == "len"]
                step = step_of(file, node, graph)
                if (
                    not sums.isdisjoint(map(unparse, walk(sum_)))
                    and any(prepared & side.flows.made(file, each, "prepared") for each in lengths)
                    and step is not None
                    and graph.dominates(loop, step)
                ):
                    yield file, node, f"`{unparse(node)[:60]}` divides what is of all batches by this process's"


def _of_one_process(file: Module, loop: ast.For) -> Found:
    """What is run for the batches of all processes and reads a value of this one's; or is read after that as if it were."""
    for inner in (node for node in walk(loop) if isinstance(node, ast.For) and _asks(node.iter, "sum_for_metrics")):
        handed, body = stored(inner), {node for statement in inner.body for node in walk(statement)}
        outside = [node for node in walk(loop) if node not in body and isinstance(node, ast.Name)]
        ours = {node.id for node in outside if isinstance(node.ctx, ast.Store) and not file.holds(inner.target, node)}
        own = ours - handed
        if handed & ours and not any(unparse(inner.target) == unparse(n) for n in walk(inner.iter)):
            yield file, inner, f"`{unparse(inner.target)}` would hold other values than those of this process's batch"
        for node in body:
            if isinstance(node, ast.Name) and node.id in own and isinstance(node.ctx, ast.Load):
                if not any(isinstance(n, ast.Name) and n.id == node.id and isinstance(n.ctx, ast.Store) for n in body):
                    yield file, node, f"`{node.id}` is of this process's batch, and stands beside those of all"
        block = file.block(inner)
        for statement in block[block.index(inner) + 1 :]:
            if any(_grows(file, loop, node) for node in walk(statement)):
                for node in (n for n in walk(statement) if isinstance(n, ast.Name) and n.id in handed):
                    if isinstance(node.ctx, ast.Load) and node.id not in stored(statement):
                        yield file, node, f"`{node.id}` is the last batch of all processes here, and is added up"


def _left_early(file: Module, loop: ast.For) -> Found:
    """A round that one batch of all ends, beside what counts the others of that round, or with a loop that goes on."""
    for inner in (node for node in walk(loop) if isinstance(node, ast.For) and _asks(node.iter, "sum_for_metrics")):
        body = {node for statement in inner.body for node in walk(statement)}
        leaves = [n for n in body if isinstance(n, ast.Break | ast.Continue | ast.Return)]
        ends = [n for n in leaves if isinstance(n, ast.Return) or file.innermost(n) is inner]
        beside = [node for node in walk(loop) if node not in body and _grows(file, loop, node)] if ends else []
        for node in beside:
            yield file, node, f"`{unparse(node)[:60]}` counts batches behind the one that ends the loop"
        below = [*inner.orelse, *file.block(inner)[file.block(inner).index(inner) + 1 :]]
        if any(isinstance(n, ast.Break) for n in ends) and [type(n) for n in below] != [ast.Continue, ast.Break]:
            yield file, inner, f"the loop over `{unparse(loop.iter)[:60]}` would go on where it ended"


def _grows(file: Module, loop: ast.For, node: ast.AST) -> bool:
    """`total += ...`, `losses.append(...)`, `total = total + ...`, of what the loop does not make itself."""
    if isinstance(node, ast.AugAssign):
        return root(node.target) not in own_names(file, loop)
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
        return any(unparse(side) == unparse(node.targets[0]) for side in (node.value.left, node.value.right))
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        grows = isinstance(function, ast.Attribute) and function.attr in GROWS
        return (grows or keeps_what_it_gets(file, node)) and root(function) not in own_names(file, loop)
    return False


def _is_added_up(file: Module, loop: ast.For, node: ast.AST) -> bool:
    if _asks(node, "sum_for_metrics"):
        return True
    inner = [above for above in file.ancestors(node) if isinstance(above, ast.For) and file.holds(loop, above)]
    if any(_asks(above.iter, "sum_for_metrics") for above in inner):
        return True
    return isinstance(node, ast.Expr) and only_shows(file, node.value)


def _asks(node: ast.AST, method: str) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == method and is_accelerator(n.value) for n in walk(node))


def _over_prepared(side: Side, file: Module, node: ast.AST, seen: set[ast.AST]) -> bool:
    """Whether a loop over a prepared loader is around a node, in its function or around each call of it."""
    for above in file.ancestors(node):
        if isinstance(above, ast.For | ast.AsyncFor | ast.comprehension) and side.is_prepared(file, above.iter):
            return _is_prepared(side, file, above.iter)
        if isinstance(above, ast.While) and _draws(side, file, above):
            return True
        if isinstance(above, Function):
            if above in seen:
                return False
            seen.add(above)
            sites = side.above(above)
            return _draws(side, file, above) or (
                bool(sites) and all(_over_prepared(side, site.file, site.call, seen) for site in sites)
            )
    return _draws(side, file, file.tree)


def _draws(side: Side, file: Module, around: ast.AST) -> bool:
    """`next(iterator)` of a prepared loader."""
    return any(
        isinstance(node.func, ast.Name)
        and node.func.id == "next"
        and bool(node.args)
        and _is_prepared(side, file, node.args[0])
        for node in file.walk(around, ast.Call)
    )


def _is_prepared(side: Side, file: Module, node: ast.expr) -> bool:
    """Whether an expression is a prepared loader on every path: of a field, whichever method ran before."""
    return side.is_prepared(file, node) and side.once(of_every_loader).other(file, node) is None


def _twice(side: Side, file: Module, call: ast.Call) -> Found:
    scope = file.scope(call).frame
    graph = side.graph(scope)
    step = step_of(file, call, graph)
    if step is None:
        return
    given = {n.id for argument in call.args for n in walk(argument) if isinstance(n, ast.Name)}
    for other_file, other in side.asked("gather_for_metrics", "gather"):
        if other_file is not file or file.scope(other).frame is not scope:
            continue
        first = step_of(file, other, graph)
        if first is None or not graph.reachable(first, step):
            continue
        for name in sorted(given & stored(first)):
            drawn = not graph.dominates(first, step) or first is step
            rebound = drawn and any(
                isinstance(above, ast.For | ast.AsyncFor) and name in stored(above) for above in file.ancestors(step)
            )
            rebound = rebound or any(
                isinstance(node, ast.stmt)
                and node is not first
                and graph.holds(node)
                and name in stored(node)
                and graph.reachable(first, node)
                and graph.dominates(node, step)
                and node is not step
                for node in file.walk(file.tree)
                if not isinstance(node, ast.For | ast.AsyncFor)
            )
            if not rebound:
                yield file, call, f"{name} would be gathered twice"


CONDITION = Condition(
    code="AM955",
    name="gathered_loader",
    summary="samples would be counted several times, or for one process only",
    why="A prepared loader gives each process a part of the data, any other gives each process all of it. So "
    "what is gathered must come from a prepared loader, once, and what is counted over a prepared loader "
    "must be gathered or reduced. Rows are those of the original only if no batch is left out.",
    example_before="for x, y in plain_loader:\n    correct += accelerator.gather_for_metrics(model(x).argmax(1) == y).sum()",
    example_after="for x, y in prepared_loader:\n    correct += accelerator.gather_for_metrics(model(x).argmax(1) == y).sum()",
    find=at_places("AM955", _found),
)
