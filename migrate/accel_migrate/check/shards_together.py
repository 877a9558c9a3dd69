"""AM968: data is sharded once; a step trains on sharded or on whole data alone; what is left as it was has its data whole."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.check.assignments import Assignments
from accel_migrate.check.condition import Condition, at_places
from accel_migrate.check.evidence import Evidence, Found, Side, argument_of, is_accelerator, parameter_names
from accel_migrate.check.left_beside import is_plain_backward
from accel_migrate.check.stores import Stores, returned
from accel_migrate.flow.calls import Made
from accel_migrate.flow.nodes import called_name, children, unparse, walk
from accel_migrate.flow.points import dotted
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module

Names = Iterator[tuple[Module, ast.Name]]
_ANOTHER = "`{}` goes by the number of the batch, which in a shard is another than in the whole"


def _found(evidence: Evidence) -> Found:
    side = evidence.after
    yield from _by_another_count(side)
    given = [(f, argument) for f, call in side.asked("prepare") for argument in call.args]
    sharded = {made for f, argument in given for made in side.flows.made(f, argument, "loader")}
    if not sharded:
        return
    attributes = (node for file in side.files for node in file.walk(file.tree, ast.Attribute))
    loaders = {made.node for made in sharded} if any(_is_rank(node) for node in attributes) else set()
    for file, call in side.calls:
        if call in loaders and (rank := _by_rank(side, file, call)) is not None:
            yield (
                file,
                call,
                f"its data depends on `{unparse(rank)[:50]}` already, and prepare() would shard it once more",
            )
    for file, call in side.asked("backward"):
        yield from _half(side, file, call, sharded)
        yield from _at_number(side, file, call)
    for file in side.files:
        for node in file.walk(file.tree, ast.For):
            if _is_prepared_here(side, file, node.iter):
                yield from _by_number(file, node)
    for file, call in side.calls:
        if is_plain_backward(side, call):
            loop = _loop_over_prepared(side, file, call, frozenset())
            if loop is not None:
                text = unparse(loop.iter)[:50]
                yield file, call, f"the loop over `{text}` is left as it was, and {text} would be sharded for another"


def _by_another_count(side: Side) -> Found:
    """A DistributedSampler that is told how many processes there are by something else than the processes."""
    for file, call in side.of_library("DistributedSampler"):
        told = [k.value for k in call.keywords if k.arg == "num_replicas"] or call.args[1:2]
        other = _other_count(side, file, told[0], set()) if told else None
        if other is not None and side.created and side.runs(file, call):
            text = unparse(other)[:50]
            yield (
                file,
                call,
                f"its DistributedSampler would shard by `{text}`, not by the number of processes that the launcher starts",
            )


def _other_count(side: Side, file: Module, node: ast.expr, seen: set[ast.AST]) -> ast.expr | None:
    """What of a number is not known to be the number of processes, or a constant where there is but one."""
    if node in seen:
        return None
    seen.add(node)
    match node:
        case ast.Constant():
            return None
        case ast.Attribute(attr=attr) if attr.endswith("num_processes") and is_accelerator(node.value):
            return None
        case ast.Call() if "WORLD_SIZE" in unparse(node) or unparse(node.func).endswith("get_world_size"):
            return None
        case ast.Subscript() if "WORLD_SIZE" in unparse(node):
            return None
        case ast.IfExp(body=body, orelse=other):
            sources = [(file, body), (file, other)]
        case ast.BoolOp(values=values):
            sources = [(file, value) for value in values]
        case ast.Call(func=ast.Name(id="int"), args=[inner]):
            sources = [(file, inner)]
        case ast.Call():
            callees = side.flows.callees.get(node, ())
            sources = [(side.flows.function_file[callee], value) for callee in callees for value in returned(callee)]
        case ast.Name() | ast.Attribute():
            sources = [(one.file, one.value) for one in side.once(Assignments).to(file, node) if one.item is None]
            sources += _handed(side, file, node)
        case _:
            sources = []
    if not sources:
        return node
    others = (_other_count(side, owner, value, seen) for owner, value in sources)
    return next((other for other in others if other is not None), None)


def _handed(side: Side, file: Module, node: ast.expr) -> list[tuple[Module, ast.expr]]:
    """What callers hand over for a parameter."""
    scope = file.binder(node.id, file.scope(node)) if isinstance(node, ast.Name) else None
    function = scope.node if scope is not None else None
    if not isinstance(function, Function) or not isinstance(node, ast.Name):
        return []
    given = [(site.file, argument_of(function, site.call, node.id)) for site in side.above(function)]
    return [(caller, argument) for caller, argument in given if argument is not None]


def _by_number(file: Module, loop: ast.For) -> Found:
    """`labels[size * i : size * (i + 1)]`: what stands beside a loader, by the number of the batch in the whole data."""
    inside = walk(loop)
    counted = {n.target.id for n in inside if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)}
    counted |= _enumerated(loop)
    for node in inside:
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and isinstance(node.ctx, ast.Load):
            if any(isinstance(part, ast.Name) and part.id in counted for part in walk(node.slice)):
                yield file, node, _ANOTHER.format(unparse(node)[:60])


def _enumerated(loop: ast.For) -> set[str]:
    numbered = isinstance(loop.target, ast.Tuple) and "enumerate" in unparse(loop.iter)
    first = loop.target.elts[0] if numbered else None  # type: ignore[attr-defined]
    return {first.id} if isinstance(first, ast.Name) else set()


def _at_number(side: Side, file: Module, backward: ast.Call) -> Found:
    """`labels[i]` in a loss, where neither the loader shuffles nor what is read comes of a shard."""
    for f, name in _fed(side, file, backward, backward.args, frozenset()):
        chosen = f.parents[name]
        loop = _loop_over_prepared(side, f, name, frozenset()) if isinstance(chosen, ast.Subscript) else None
        if loop is None or not isinstance(chosen, ast.Subscript) or not _is_place(loop, chosen.slice):
            continue
        set_here = [loop.target, *[target for _, target, _ in _assigned(loop, name)]]
        own = {part.id for each in set_here for part in walk(each) if isinstance(part, ast.Name)}
        if chosen.value is name and name.id not in own and not side.flows.made(f, name, "prepared"):
            if not any(_shuffles(made.node) for made in side.flows.made(f, loop.iter, "loader")):
                yield f, chosen, _ANOTHER.format(unparse(chosen)[:60])


def _is_place(loop: ast.For, chosen: ast.expr) -> bool:
    """`i`, `i - 1`, and not `i % 2`."""
    parts = walk(chosen)
    named = {part.id for part in parts if isinstance(part, ast.Name)}
    return not _enumerated(loop).isdisjoint(named) and not any(isinstance(part, ast.Mod) for part in parts)


def _shuffles(loader: ast.AST) -> bool:
    asked = loader.keywords if isinstance(loader, ast.Call) else []
    return any(
        keyword.arg in ("sampler", "batch_sampler", None)
        or (keyword.arg == "shuffle" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True)
        for keyword in asked
    )


def _by_rank(side: Side, file: Module, loader: ast.Call) -> ast.expr | None:
    """`Mine(data, accelerator.process_index)`, of which a loader's data or sampler is made, if the runtime does not know it."""
    methods = _methods(side)
    assigned = [
        (_field(part, methods), value)
        for _, target, value in _assigned(file.scope(loader).frame.node, loader)
        for part in _set_by(target)
    ]
    pending = [
        *loader.args[:1],
        *[k.value for k in loader.keywords if k.arg in ("dataset", "sampler", "batch_sampler")],
    ]
    seen: set[str] = set()
    while pending:
        value = pending.pop()
        if isinstance(value, ast.Compare) or (isinstance(value, ast.Call) and _knows_replicas(side, value)):
            continue  # `verbose=rank == 0`; what has `num_replicas` is not sharded again
        if isinstance(value, ast.Attribute) and _is_rank(value):
            return value
        if isinstance(value, ast.Call) and (read := _read_inside(side, value)) is not None:
            return read
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            pending += [value.func.value, *value.args, *[keyword.value for keyword in value.keywords]]
            continue  # a method may read every field
        if field := _field(value, methods):
            pending += [held for other, held in assigned if field not in seen and _is_part(field, other)]
            seen.add(field)
            continue
        pending += [child for child in children(value) if isinstance(child, ast.expr)]
        pending += [child.value for child in children(value) if isinstance(child, ast.keyword)]
    return None


def _is_rank(node: ast.Attribute) -> bool:
    return node.attr.endswith("process_index") and is_accelerator(node.value)


def _methods(side: Side) -> set[str]:
    methods = [(file, f) for file in side.files for f in file.walk(file.tree, ast.FunctionDef)]
    return {f.name for file, f in methods if isinstance(file.parents[f], ast.ClassDef)}


def _field(node: ast.expr, methods: set[str]) -> str:
    """`args.data`, apart from `args.rank`; of what may read every field, a property say, the object. Empty for all else."""
    names = dotted(node).split(".")
    whole = [i for i, name in enumerate(names) if i and (name in methods or name.startswith("__"))]
    return ".".join(names[: whole[0]] if whole else names)


def _is_part(field: str, other: str) -> bool:
    """Whether one of two is the other, or is kept in it."""
    return f"{field}.".startswith(f"{other}.") or f"{other}.".startswith(f"{field}.")


def _set_by(target: ast.expr) -> Iterator[ast.expr]:
    """The names and fields that an assignment sets, or an item of which."""
    for part in walk(target):
        if isinstance(part, ast.Name | ast.Attribute | ast.Subscript) and isinstance(part.ctx, ast.Store):
            while isinstance(part, ast.Subscript):
                part = part.value
            yield part


def _classes(side: Side, call: ast.Call) -> list[ast.AST]:
    """The project's classes of the name that is called."""
    name = called_name(call)
    return [each for file in side.files for each in file.walk(file.tree, ast.ClassDef) if each.name == name]


def _knows_replicas(side: Side, call: ast.Call) -> bool:
    """Whether a call makes a DistributedSampler, or, but for Accelerate, an object of a class that has its `num_replicas`."""
    classes = [] if side.wraps_models else _classes(side, call)
    return called_name(call) == "DistributedSampler" or any(
        word in unparse(each) for each in classes for word in ("num_replicas", "DistributedSampler")
    )


def _read_inside(side: Side, call: ast.Call) -> ast.expr | None:
    """`rows[accelerator.process_index :: 2]` in the class that a call makes an object of: more than to ask for rank 0."""
    for owner in _classes(side, call):
        ranks = {part for part in walk(owner) if isinstance(part, ast.Attribute) and _is_rank(part)}
        kept = [part for part in walk(owner) if isinstance(part, ast.Assign) and part.value in ranks]
        names = {unparse(target) for part in kept for target in part.targets}
        asked = {inner for part in walk(owner) if _asks_or_tells(part) for inner in walk(part)}
        asked |= {part.value for part in kept}
        for part in walk(owner):
            if isinstance(part, ast.Name | ast.Attribute) and isinstance(part.ctx, ast.Load) and part not in asked:
                if part in ranks or (names and unparse(part) in names):
                    return part
    return None


def _asks_or_tells(node: ast.AST) -> bool:
    """`rank == 0`, and a rank in a text."""
    compared = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
    return isinstance(node, ast.FormattedValue) or any(isinstance(side, ast.Constant) for side in compared)


def _half(side: Side, file: Module, backward: ast.Call, sharded: set[Made]) -> Found:
    """`for x in prepared: other = batches[i]`, where `batches` are those of a loader that every process has whole."""
    names = list(_fed(side, file, backward, backward.args, frozenset()))
    if not any(side.flows.made(f, name, "prepared") & side.looped_over for f, name in names):
        return
    for f, name in names:
        loaders = side.flows.made(f, name, "loader")
        if loaders and not loaders & sharded and not side.flows.made(f, name, "prepared"):
            whose = "of a loader that is not prepared, beside those of one that is"
            yield f, name, f"`{name.id}` would be batches {whose}"
            return


def _fed(side: Side, file: Module, at: ast.AST, values: list[ast.expr], seen: frozenset[Function]) -> Names:
    """The names that values are computed from in the loop around a node, or in its function and the loops that call it."""
    around = _region(side, file, at)
    bound, stores = _bound(around, at), side.once(Stores)
    names: dict[str, ast.Name] = {}
    read: set[ast.Name] = set()
    pending = [*values]
    while pending:
        for part in walk(pending.pop()):
            if isinstance(part, ast.Name) and part not in read:
                read.add(part)
                names.setdefault(part.id, part)
                seen_here = {store.node for store in stores.reaching(file, part)}
                pending += [value for node, value in bound.get(part.id, ()) if node in seen_here]
    yield from ((file, name) for name in names.values())
    if isinstance(around, Function) and around not in seen:
        for site in side.above(around):
            given = [argument_of(around, site.call, name) for name in parameter_names(around) if name in names]
            fed = [argument for argument in given if argument is not None]
            yield from _fed(side, site.file, site.call, fed, seen | {around})


def _region(side: Side, file: Module, node: ast.AST) -> ast.AST:
    """The innermost loop over a prepared loader, or else the function."""
    for above in file.ancestors(node):
        if isinstance(above, Function) or (
            isinstance(above, ast.For) and side.flows.made(file, above.iter, "prepared")
        ):
            return above
    return file.tree


def _bound(around: ast.AST, at: ast.AST) -> dict[str, list[tuple[ast.AST, ast.expr]]]:
    """What each name is set to, or a part of it, and by what statement, but for loops that a node is not in."""
    found: dict[str, list[tuple[ast.AST, ast.expr]]] = {}
    for statement, target, value in _assigned(around, at):
        for name in {part.id for part in walk(target) if isinstance(part, ast.Name)}:
            found.setdefault(name, []).append((statement, value))
    return found


def _assigned(around: ast.AST, at: ast.AST) -> Iterator[tuple[ast.AST, ast.expr, ast.expr]]:
    """Each statement and target with what it is set to, but for loops that a node is not in: they evaluate."""
    pending = [around]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.For) and node is not around and not any(part is at for part in walk(node)):
            continue
        pending += children(node)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((node, target, node.value) for target in targets)


def _loop_over_prepared(side: Side, file: Module, node: ast.AST, seen: frozenset[Function]) -> ast.For | None:
    """The loop over a prepared loader in which a node runs."""
    for above in file.ancestors(node):
        if isinstance(above, ast.For) and _is_prepared_here(side, file, above.iter):
            return above
        if isinstance(above, Function):
            sites = side.above(above) if above not in seen else []
            found = (_loop_over_prepared(side, site.file, site.call, seen | {above}) for site in sites)
            return next((loop for loop in found if loop is not None), None)
    return None


def _is_prepared_here(side: Side, file: Module, node: ast.expr) -> bool:
    """Whether something is a prepared loader; an attribute, one that its own class prepares."""
    owners = {
        file.scope(made.node).frame.parent
        for made in side.flows.made(file, node, "prepared")
        if made.node in file.parents
    }
    attribute = any(isinstance(part, ast.Attribute) for part in walk(node))
    if attribute:
        return file.scope(node).frame.parent in owners
    return side.is_prepared(file, node)


CONDITION = Condition(
    code="AM968",
    name="shards_together",
    summary="sharded and whole data would be trained on side by side, or a loop that is left would get a shard",
    why="A prepared loader gives each process a shard, any other gives each process all of its data. A step that takes batches "
    "of both sees them in other proportions than the script was written for. And a loop that is not migrated knows nothing of "
    "the other processes: over a prepared loader it would train on a shard by itself. Where the script shards by rank, in a "
    "sampler or a data set of its own, a prepared loader would take a shard of a shard.",
    example_before="for x in prepared_loader:\n    accelerator.backward(model(x) + model(next(plain_batches)))",
    example_after="for x in prepared_loader:\n    accelerator.backward(model(x) + model(next(prepared_batches)))",
    find=at_places("AM968", _found),
)
