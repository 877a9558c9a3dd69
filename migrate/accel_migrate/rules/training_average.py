"""AM605: a sum over this process's samples is divided by this process's part of the data."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.entries import is_chosen
from accel_migrate.analysis.loops import LoaderLoop
from accel_migrate.analysis.running import Running, running_figures
from accel_migrate.edits import change, replace_node
from accel_migrate.plan import Change, Edit, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM605"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    figures = [f for f in running_figures(training.loops, training.backwards) if f.module is module and f.summed]
    shared = [f for f in figures if training.shares(f.loop)]
    for node in module.walk(module.tree):
        divided = _division(node)
        if divided is None:
            continue
        left, right = divided
        for figure in shared:
            if (
                _mentions(left, figure.name)
                and _same_function(context, node, figure.loop)
                and _after(node, figure.loop)
            ):
                spelled = training.ready(module, right)
                if spelled is not None and _is_length_of_data(context, right, figure.loop):
                    yield change(
                        CODE, right, "divides by this process's part", [_part(context, node, right, spelled)], loop=training.index
                    )  # fmt: skip
                    break
    yield from _by_phase(context, [f for f in figures if is_chosen(context.script.roles, f.loop)])


def _by_phase(context: Context, figures: list[Running]) -> Iterator[Change]:
    """`running_loss / dataset_sizes[phase]`: right in the phases that evaluate, and too small in the one that trains."""
    training, module = context.training, context.module
    told: set[str] = set()
    for node in module.walk(module.tree):
        divided = _division(node)
        for figure in figures if divided is not None else ():
            assert divided is not None
            chosen = figure.name not in told and _mentions(divided[0], figure.name) and _after(node, figure.loop)
            if chosen and _same_function(context, node, figure.loop):
                told.add(figure.name)
                message = (
                    f"while training, `{figure.name}` is over this process's share; where it is divided by the number of all "
                    "samples, times accelerator.num_processes is about the figure of all"
                )
                yield change(CODE, node, message, loop=training.index, safety=Safety.NOTE)


def _division(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return node.left, node.right
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
        return node.target, node.value
    return None


def _part(context: Context, node: ast.AST, right: ast.expr, spelled: str) -> Edit:
    text = f"{context.module.source.code(right)} / {spelled}.num_processes"
    return replace_node(context.module.source, right, text if isinstance(node, ast.AugAssign) else f"({text})")


def _is_length_of_data(context: Context, node: ast.expr, loop: LoaderLoop) -> bool:
    """`len(loader.dataset)`, or `len(data)` of what the loader was built over."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) != "len" or len(node.args) != 1:
        return False
    module, argument = context.module, node.args[0]
    if isinstance(argument, ast.Attribute) and argument.attr == "dataset":
        return ast.unparse(argument.value) == ast.unparse(loop.loader)
    loader = module.variable(loop.loader)
    built = [b.value for b in module.bindings(loader)] if loader is not None else []
    return any(
        isinstance(call, ast.Call)
        and bool(call.args)
        and module.variable(argument) is not None
        and module.variable(call.args[0]) == module.variable(argument)
        for call in built
    )


def _mentions(node: ast.expr, name: str) -> bool:
    return any(isinstance(n, ast.Name | ast.Attribute) and ast.unparse(n) == name for n in ast.walk(node))


def _same_function(context: Context, node: ast.AST, loop: LoaderLoop) -> bool:
    return context.module.scope(node).function is loop.function


def _after(node: ast.AST, loop: LoaderLoop) -> bool:
    return bool(getattr(node, "lineno", 0) > (loop.statement.end_lineno or 0))


RULE = Rule(
    code=CODE,
    name="training_average",
    summary="a running sum over the length of the whole data set",
    why="After prepare each process sums up its own share, while `len(loader.dataset)` still speaks of all: the figure would be "
    "N times too small. Divided by its part, it is the main process's view, and on one process the same to the bit.",
    example_before="return total_loss / len(loader.dataset)",
    example_after="return total_loss / (len(loader.dataset) / accelerator.num_processes)",
    find=find,
)
