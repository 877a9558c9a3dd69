"""AM806: what training depends on is decided alike on every process."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.trainings.decisions import Decision
from accel_migrate.edits import change, note, quoted, replace_node
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.points import never_returns
from accel_migrate.flow.scopes import Module
from accel_migrate.plan import Change, Edit, Insert
from accel_migrate.rule import Context, Rule

CODE = "AM806"
_NO_ERROR = {"KeyboardInterrupt", "StopIteration", "SystemExit", "ImportError", "ModuleNotFoundError"}


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    own: dict[ast.stmt, list[str]] = {}
    for decision in training.decisions:
        if decision.module is not module:
            continue
        name = unparse(decision.figure)
        spelled = training.accelerator(module, decision.place)
        if not decision.is_number or spelled is None:
            own.setdefault(decision.node, []).append(f"`{name}`")
            continue
        message = f"all processes decide alike: `{name}` is averaged over them"
        yield change(context, CODE, decision.node, message, [_averaged(context, decision, spelled)])

    for node, figures in own.items():
        names = list(dict.fromkeys(figures))
        message = (
            f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} this process's own, so processes may part here and then "
            'wait for each other for ever; decide on what is the same on all, such as accelerator.reduce(loss, "mean")'
        )
        yield note(context, CODE, node, message)
    yield from _left_by_error(context)


def _left_by_error(context: Context) -> Iterator[Change]:
    """A step that may fail on one process alone, where the script catches that and goes on: out of memory, a bad sample."""
    training, graph = context.training, context.script.graph
    steps: list[tuple[Module, ast.AST]] = [(each.module, each.call) for each in training.backwards]
    seen: set[ast.AST] = set()
    for module, node in steps:
        function = module.scope(node).function
        if function is not None and function not in seen:
            seen.add(function)
            steps += graph.sites.get(function, ())
    own = [node for module, node in steps if module is context.module]
    for handler in dict.fromkeys(h for node in own if (h := _catching(context.module, node, own)) is not None):
        caught = f"except {unparse(handler.type)}" if handler.type is not None else "except"
        message = (
            f"`{caught}` takes a process out of a step that fails on it alone, and the others wait for its gradients for "
            "ever; raise the error again where accelerator.num_processes > 1"
        )
        yield note(context, CODE, handler, message)


def _catching(module: Module, node: ast.AST, steps: list[ast.AST]) -> ast.ExceptHandler | None:
    """The handler that an error of a step comes to and that goes on with steps: in a loop, or because it has some itself."""
    inner, found = node, None
    for above in module.ancestors(node):
        if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef):
            return None
        if isinstance(above, ast.For | ast.While) and found is not None:
            return found
        if isinstance(above, ast.Try) and inner in above.body:
            own = [each for each in above.handlers if each.type is None or unparse(each.type) not in _NO_ERROR]
            again = [each for each in own if any(module.holds(each, step) for step in steps)]
            if again:
                return again[0]
            found = found or next((each for each in own if not _leaves(each)), None)
        inner = above
    return None


def _leaves(handler: ast.ExceptHandler) -> bool:
    """Whether a handler lets the error out again: the process ends, and the others with it."""
    return any(
        isinstance(part, ast.Raise) or (isinstance(part, ast.Expr) and never_returns(part.value))
        for part in handler.body
    )


def _averaged(context: Context, decision: Decision, accelerator: str) -> Edit:
    module, figure = context.module, decision.figure
    name = module.source.code(figure)
    mean = quoted(module.source, "mean")
    # Doubles keep a Python number as it is: on one process nothing may be rounded.
    torch = next((name for name, dotted in module.imports.items() if dotted == "torch"), "torch")
    kept = f"device={accelerator}.device" if context.settings.target == "accelerate" else f"dtype={torch}.float64"
    number = name if decision.is_plain else f"float({name})"
    averaged = f"{accelerator}.reduce({torch}.tensor({number}, {kept}), {mean}).item()"
    if decision.is_tensor:
        averaged = f"{accelerator}.reduce({name}.detach(), {mean})"
    elif decision.of_tensor and isinstance(figure, ast.Call) and isinstance(figure.func, ast.Attribute):
        averaged = f"{accelerator}.reduce({module.source.code(figure.func.value)}.detach(), {mean}).item()"
    if decision.after is not None:
        return Insert(decision.after, (f"{name} = {averaged}",), "after")
    if decision.before is not None:
        return Insert(decision.before, (f"{name} = {averaged}",), "before")
    return replace_node(module.source, figure, averaged)


RULE = Rule(
    code=CODE,
    summary="a decision on this process's own loss: a scheduler that waits for a plateau, an early end, the best weights",
    why="Processes meet in every backward pass. One that has left the loop is waited for by the others, and one that has "
    "lowered its learning rate trains other weights. Averaged over processes, the figure is the same on all: a loss, a mean, a "
    "metric. A mask, a count of rows and a guard such as `== 0` are about this process's rows, and are never averaged. An error "
    "that a process catches by itself, such as one of memory, takes it out of a step as well.",
    example_before="if loss.item() < 1e-3:\n    break",
    example_after='if accelerator.reduce(loss.detach(), "mean").item() < 1e-3:\n    break',
    find=find,
)
