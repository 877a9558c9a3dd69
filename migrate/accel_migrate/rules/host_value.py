"""AM205: a batch that was read on the CPU before it was moved comes from the device now, and back for that."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.batches import Batches
from accel_migrate.analysis.homes import chain
from accel_migrate.analysis.scopes import Variable
from accel_migrate.edits import change, dot
from accel_migrate.plan import Change, Replace
from accel_migrate.rule import Context, Rule

CODE = "AM205"
_TAKES_ARRAYS = {"numpy.array", "numpy.asarray"}


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    batches = Batches(context.script.roles, context.script.graph)
    for call in module.calls:
        read = _read_on_cpu(context, call)
        if read is None or not training.timing.after_prepare(module, call):
            continue
        sources = batches.loaders(module, read)
        if sources is not None and all(_is_shared(context, source) for source in sources):
            at = dot(module.source, call.func) if isinstance(call.func, ast.Attribute) else module.source.end(read)
            if module.qualified(call.func) in _TAKES_ARRAYS:
                at = module.source.end(read)
            edit = Replace(at, at, ".cpu()")
            yield change(CODE, call, "the batch comes from the device now", [edit], loop=training.index)


def _read_on_cpu(context: Context, call: ast.Call) -> ast.expr | None:
    """`x` of `x.numpy()` and `np.array(x)`."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "numpy" and not call.args:
        return call.func.value
    if context.module.qualified(call.func) in _TAKES_ARRAYS and len(call.args) == 1:
        argument = call.args[0]
        return argument if isinstance(argument, ast.Name | ast.Subscript | ast.Attribute) else None
    return None


def _is_shared(context: Context, loader: Variable) -> bool:
    links = chain(context.script.roles, context.script.graph, loader)
    return any(context.training.holds(link) for link in links)


RULE = Rule(
    code=CODE,
    name="host_value",
    summary="`.cpu()` before a batch is read by numpy",
    why="A prepared loader hands out batches on the device, and numpy reads only the CPU's memory. On the CPU nothing changes.",
    example_before="weights = counts(targets.numpy())",
    example_after="weights = counts(targets.cpu().numpy())",
    find=find,
)
