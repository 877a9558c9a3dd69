"""What only some processes run: an evaluation there reads all of the data, and a model runs there without its wrapper."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.distribution.rank_flow import RankFlow
from accel_migrate.analysis.evaluation.evaluation import Evaluation, Whole
from accel_migrate.analysis.processes.timing import Timing
from accel_migrate.analysis.values.loops import Backward, CallGraph
from accel_migrate.analysis.values.made_of import runs_layers, without_wrapper
from accel_migrate.analysis.values.provenance import NotMigrated
from accel_migrate.analysis.values.roles import Role, Roles, arguments_of
from accel_migrate.flow.nodes import all_arguments
from accel_migrate.flow.program import Definition
from accel_migrate.flow.scopes import Module, Variable

_LIBRARIES = {"torch", "copy", "pickle", "wandb", "numpy", "torchinfo", "torchsummary", "transformers", "logging"}


def check_backwards(flow: RankFlow, backwards: list[Backward]) -> None:
    """Gradients are averaged over all processes: one that trains by itself would wait for ever."""
    for backward in backwards:
        if flow.on_some(backward.module, backward.call):
            raise NotMigrated(
                "a condition on the rank decides which processes train here, and with an Accelerator all of them must",
                (backward.module, backward.call),
            )


def judged_by_rank(flow: RankFlow, evaluation: Evaluation) -> Evaluation:
    """What only some processes evaluate must not gather: the others would never come."""
    loop = evaluation.loop
    if not flow.on_some(loop.module, loop.statement):
        return evaluation
    return Whole(loop, "a condition on the rank decides who runs it", loop.statement.lineno, on_main=True)


def bare_uses(
    roles: Roles,
    flow: RankFlow,
    timing: Timing,
    held: frozenset[Variable],
    lifted: set[ast.If],
    unwrapped: frozenset[ast.AST],
) -> Iterator[tuple[Module, ast.expr]]:
    """Each prepared model that only some processes run, as it is called or handed over there.

    A wrapper may send buffers to all processes before each forward, and some of them would not come. Those in
    `unwrapped` have none there.
    """
    for module, call in roles.project.calls:
        guard = flow.guard(module, call) if timing.after_prepare(module, call) else None
        some = flow.some_call(module.scope(call).function) and timing.after_prepare(module, call)
        if (guard is None and not some) or guard in lifted:
            continue
        for node in _run(flow.graph, module, call) if guard is not None else [_ran(flow.graph, module, call)]:
            if node in unwrapped:
                yield module, node
                continue
            variable = module.variable(node) if isinstance(node, ast.Name | ast.Attribute) else None
            if variable is None or variable not in held or not roles.of(variable) & Role.MODEL:
                continue
            # A parameter is bare already: it was unwrapped where it was handed over.
            if guard is not None or not module.is_parameter(variable):
                yield module, node


def _ran(graph: CallGraph, module: Module, call: ast.Call) -> ast.expr:
    """What a call runs: what is called, or the model whose method runs its layers."""
    function = call.func
    return function.value if isinstance(function, ast.Attribute) and runs_layers(graph, module, function) else function


def _run(graph: CallGraph, module: Module, call: ast.Call) -> Iterator[ast.expr]:
    """What a call may run as a model: what is called, and the arguments that the called function runs."""
    yield _ran(graph, module, call)
    target = graph.roles.target(module, call)
    if target is None:
        root = module.full_name(call.func).partition(".")[0]
        if root and root not in _LIBRARIES:
            yield from all_arguments(call)
    elif not isinstance(target.node, ast.ClassDef):
        yield from (value for name, value in arguments_of(call, target) if _runs(graph, target, name, 0))


def _runs(graph: CallGraph, target: Definition, parameter: str, depth: int) -> bool:
    """Whether a function calls a parameter, or hands it to one that does."""
    module, variable = target.module, Variable(target.scope, parameter)
    for call in module.walk(target.node, ast.Call):
        if module.variable(without_wrapper(_ran(graph, module, call))) == variable:
            return True
        inner = graph.roles.function(module, call)
        if inner is None or depth > 5:
            continue
        if any(
            module.variable(v) == variable and _runs(graph, inner, n, depth + 1) for n, v in arguments_of(call, inner)
        ):
            return True
    return False
