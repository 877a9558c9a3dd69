"""AM201: a move to the device goes where a prepared loader or model makes it needless."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from accel_migrate.analysis.moves.devices import Move
from accel_migrate.analysis.moves.tensorless import holds_no_tensors
from accel_migrate.edits import change, comment_above, drop_method, left_empty, lines_about_moving, opening_bracket
from accel_migrate.effects import only_reads
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.scopes import Module
from accel_migrate.plan import Change, Edit, Remove, Replace, Uncomment
from accel_migrate.rule import Context, Rule
from accel_migrate.source import Source

CODE = "AM201"
_GO_THROUGH = {"len", "enumerate", "zip", "list", "tuple", "sum", "map", "iter"}


def find(context: Context) -> Iterator[Change]:
    module = context.module
    by_statement: dict[ast.stmt, list[Move]] = {}
    for move in context.training.dropped:
        if move.module is module:
            by_statement.setdefault(module.statement(move.call), []).append(move)
    edited = {statement: _edits(module, statement, moves) for statement, moves in by_statement.items()}
    gone = {statement for statement, edits in edited.items() if any(isinstance(edit, Remove) for edit in edits)}
    for statement, moves in by_statement.items():
        edits = edited[statement]
        for around in left_empty(module, statement, gone):
            if about := lines_about_moving(comment_above(module.source, around)):
                edits.append(Uncomment(around, about))
        kept = "" if not any(move.kept for move in moves) else "; its dtype stays"
        empty = all(holds_no_tensors(context.script.roles, module, move.receiver) for move in moves)
        reason = "it holds no tensors to move" if empty else f"prepared objects are on the device already{kept}"
        yield change(context, CODE, moves[0].call, reason, edits)


def _edits(module: Module, statement: ast.stmt, moves: list[Move]) -> list[Edit]:
    source = module.source
    dropped = {move.call: move.receiver for move in moves if not move.kept}
    edits: list[Edit]
    about_moving = lines_about_moving(comment_above(source, statement, parted=True))
    kept = _kept_containers(module, statement, dropped)
    if kept:
        edits = [*kept, *[_shortened(source, m) for m in moves if not _is_inside(source, m.call, kept)]]
        return [*edits, Uncomment(statement, about_moving)] if about_moving else edits
    if len(dropped) == len(moves) and (
        _does_nothing(statement, dropped) or _is_entry_again(module, statement, dropped)
    ):
        return [Remove(statement, keep_comments=not about_moving, lines=about_moving)]
    gone = _itself_again(source, statement, dropped)
    edits = [*gone, *[_shortened(source, m) for m in moves if not _is_inside(source, m.call, gone)]]
    replaced = _plain_copy(source, statement, dropped)
    if replaced is not None:
        edits = [replaced]
    if about_moving:
        edits.append(Uncomment(statement, about_moving))
    return [*edits, *_comment_behind(source, statement)] if len(dropped) == len(moves) else edits


def _comment_behind(source: Source, statement: ast.stmt) -> Iterator[Uncomment]:
    """`# on the GPU` in the line of a statement that stays without its move."""
    behind = source.text[source.end(statement) :].split("\n", 1)[0].strip()
    if behind.startswith("#") and lines_about_moving(behind):
        yield Uncomment(statement, behind=True)


def _kept_containers(module: Module, statement: ast.stmt, dropped: dict[ast.Call, ast.expr]) -> list[Replace]:
    """`images = [x.to(device) for x in images]` is `list(images)` where somebody may ask for a list, or change it."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return []
    pairs = [(statement.targets[0], statement.value)]
    match pairs[0]:
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            pairs = list(zip(targets, values))
    listed = [(target, value, found) for target, value in pairs if (found := _listed(value, dropped)) is not None]
    if all(_may_be_any_kind(module, target) for target, _, _ in listed):
        return []
    source = module.source
    return [
        Replace(source.start(value), source.end(value), f"{kind}({source.code(origin)})")
        for _, value, (kind, origin) in listed
    ]


def _listed(value: ast.expr, dropped: dict[ast.Call, ast.expr]) -> tuple[str, ast.expr] | None:
    """The list or tuple that is made of an iterable, whose items are themselves without their moves."""
    kind = "list"
    match value:
        case ast.Call(func=ast.Name(id="tuple" | "list" as kind), args=[ast.GeneratorExp() | ast.ListComp() as inner]):
            value = inner
    if isinstance(value, ast.ListComp | ast.GeneratorExp) and _is_identity(value, dropped):
        return kind, value.generators[0].iter
    return None


def _may_be_any_kind(module: Module, target: ast.expr) -> bool:
    """Whether it is all the same to every reader of a name if it holds a list or a tuple: it is taken apart or gone through."""
    if isinstance(target, ast.Tuple | ast.List):
        return True
    variable = module.variable(target) if isinstance(target, ast.Name) else None
    if variable is None:
        return False
    names = module.walk(module.tree, ast.Name)
    return all(
        _takes_apart(module.parents[name], name)
        for name in names
        if isinstance(name.ctx, ast.Load) and module.variable(name) == variable
    )


def _takes_apart(reader: ast.AST, name: ast.Name) -> bool:
    match reader:
        case ast.Assign(targets=[ast.Tuple() | ast.List()]) | ast.Starred() | ast.keyword(arg=None):
            return True
        case ast.For(iter=read) | ast.comprehension(iter=read):
            return read is name
        case ast.Subscript(value=read, slice=part, ctx=ast.Load()):
            return read is name and not isinstance(part, ast.Slice)
        case ast.Call(func=ast.Name(id=called)):
            return called in _GO_THROUGH
    return False


def _itself_again(source: Source, statement: ast.stmt, dropped: dict[ast.Call, ast.expr]) -> list[Replace]:
    """`x, y = x.view(n).to(device), y.to(device)`: what is only itself without its move leaves both sides."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return []
    target, value = statement.targets[0], statement.value
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple) or len(target.elts) != len(value.elts):
        return []
    pairs = list(zip(target.elts, value.elts))
    again = {n for n, (a, b) in enumerate(pairs) if b in dropped and isinstance(a, ast.Name) and _same(a, dropped[b])}
    if not all(_is_plain(source, side) for side in (target, value)):
        return []
    return [edit for side in (target, value) for edit in _without(source, side.elts, again)]


def _is_plain(source: Source, side: ast.Tuple) -> bool:
    """Whether nothing but a comma stands between the items of a tuple, and none behind them: `(x,)` is no `x`."""
    items = side.elts
    between = [source.text[source.end(a) : source.start(b)].strip() for a, b in pairwise(items)]
    return all(text == "," for text in between) and "," not in source.text[source.end(items[-1]) : source.end(side)]


def _without(source: Source, items: list[ast.expr], gone: set[int]) -> Iterator[Replace]:
    """Items go with the comma before them; the first ones with the comma behind them."""
    kept = [number for number in range(len(items)) if number not in gone]
    if kept[0]:
        yield Replace(source.start(items[0]), source.start(items[kept[0]]), "")
    for here, following in zip(kept, [*kept[1:], len(items)]):
        if following > here + 1:
            yield Replace(source.end(items[here]), source.end(items[following - 1]), "")


def _is_inside(source: Source, call: ast.Call, edits: list[Replace]) -> bool:
    return any(edit.start <= source.start(call) and source.end(call) <= edit.end for edit in edits)


def _shortened(source: Source, move: Move) -> Replace:
    if not move.kept:
        return drop_method(source, move.call)
    inside = ", ".join(source.code(argument) for argument in move.kept)
    return Replace(opening_bracket(source, move.call) + 1, source.end(move.call) - 1, inside)


def _does_nothing(statement: ast.stmt, dropped: dict[ast.Call, ast.expr]) -> bool:
    """Whether a statement that loses its moves says only that something is itself."""
    if isinstance(statement, ast.Expr):
        return isinstance(_reduced(statement.value, dropped), ast.Name | ast.Attribute)
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:  # `x: Tensor = x.to(device)`
        return _same(statement.target, _reduced(statement.value, dropped))
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    return _same(statement.targets[0], _reduced(statement.value, dropped))


def _is_entry_again(module: Module, statement: ast.stmt, dropped: dict[ast.Call, ast.expr]) -> bool:
    """`batch[k] = v.to(device)` in a loop over `batch.items()`: without the move the entry is what it was."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    entry = statement.targets[0]
    loop = next((parent for parent in module.ancestors(statement) if isinstance(parent, ast.For)), None)
    if loop is None or not isinstance(entry, ast.Subscript):
        return False
    pair = ast.Tuple([entry.slice, _reduced(statement.value, dropped)], ast.Load())
    return unparse(loop.iter) == f"{unparse(entry.value)}.items()" and _same(loop.target, pair)


def _plain_copy(source: Source, statement: ast.stmt, dropped: dict[ast.Call, ast.expr]) -> Replace | None:
    """`b = [x.to(device) for x in a]` becomes `b = a`, and `tuple(x.to(device) for x in a)` is `tuple(a)`."""
    if not isinstance(statement, ast.Assign):
        return None
    value = statement.value
    if isinstance(value, ast.Call) and unparse(value.func) in ("tuple", "list") and len(value.args) == 1:
        value = value.args[0]
    if isinstance(value, ast.IfExp):
        either = _reduced(value, dropped)  # `Net().cuda() if use_cuda else Net()`
        return Replace(source.start(value), source.end(value), source.code(either)) if either is not value else None
    if isinstance(value, ast.ListComp | ast.GeneratorExp | ast.DictComp) and _is_identity(value, dropped):
        origin = value.generators[0].iter
        if isinstance(value, ast.DictComp):
            assert isinstance(origin, ast.Call) and isinstance(origin.func, ast.Attribute)
            origin = origin.func.value
        text = source.code(origin)
        bracketed = value is not statement.value and isinstance(
            value, ast.GeneratorExp
        )  # those of the call are its own
        return Replace(source.start(value), source.end(value), f"({text})" if bracketed else text)
    return None


def _reduced(node: ast.expr, dropped: dict[ast.Call, ast.expr]) -> ast.expr:
    """The expression as it reads without the moves, as far as identity is concerned."""
    while isinstance(node, ast.Call) and node in dropped:
        node = dropped[node]
    if isinstance(node, ast.Tuple | ast.List):
        return ast.Tuple([_reduced(item, dropped) for item in node.elts], ast.Load())
    if isinstance(node, ast.IfExp):
        return _either(node, dropped)
    if isinstance(node, ast.Call) and unparse(node.func) in ("tuple", "list") and len(node.args) == 1:
        inner = _reduced(node.args[0], dropped)  # `tuple(x.to(device) for x in batch)`
        return inner if isinstance(node.args[0], ast.GeneratorExp) and inner is not node.args[0] else node
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp) and _is_identity(node, dropped):
        origin = node.generators[0].iter
        if isinstance(node, ast.DictComp) and isinstance(origin, ast.Call) and isinstance(origin.func, ast.Attribute):
            return origin.func.value
        return origin
    return node


def _is_identity(node: ast.ListComp | ast.GeneratorExp | ast.DictComp, dropped: dict[ast.Call, ast.expr]) -> bool:
    """`{k: v.to(device) for k, v in batch.items()}`, also with `... if is_tensor(v) else v`; without a filter."""
    if len(node.generators) != 1 or node.generators[0].ifs or node.generators[0].is_async:
        return False
    generator = node.generators[0]
    if isinstance(node, ast.DictComp):
        if not (
            isinstance(generator.iter, ast.Call)
            and isinstance(generator.iter.func, ast.Attribute)
            and generator.iter.func.attr == "items"
            and not generator.iter.args
        ):
            return False
        pair = ast.Tuple([node.key, _either(_reduced(node.value, dropped), dropped)], ast.Load())
        return _same(generator.target, pair)
    return _same(generator.target, _either(_reduced(node.elt, dropped), dropped))


def _either(node: ast.expr, dropped: dict[ast.Call, ast.expr]) -> ast.expr:
    """`v.to(device) if torch.is_tensor(v) else v` is `v` either way."""
    if isinstance(node, ast.IfExp):
        body, orelse = _reduced(node.body, dropped), _reduced(node.orelse, dropped)
        if only_reads(node.test) and _same(body, orelse) and not isinstance(body, ast.Tuple):
            return body
    return node


def _same(left: ast.expr, right: ast.expr) -> bool:
    if isinstance(left, ast.Tuple | ast.List) and isinstance(right, ast.Tuple | ast.List):
        return len(left.elts) == len(right.elts) and all(_same(a, b) for a, b in zip(left.elts, right.elts))
    if isinstance(left, ast.Tuple | ast.List) or isinstance(right, ast.Tuple | ast.List):
        return False
    return unparse(left) == unparse(right)


RULE = Rule(
    code=CODE,
    summary="drop moves of batches and prepared models",
    why="A prepared loader hands out batches that are on this process's device, and `prepare` places the model. A type "
    "in `.to(device, dtype)` stays. Tensors that the loop makes itself keep their move.",
    example_before="inputs, targets = inputs.to(device), targets.to(device)",
    example_after="",
    find=find,
)
