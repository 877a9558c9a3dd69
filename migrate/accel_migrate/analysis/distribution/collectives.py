"""Collectives that a script calls by hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.distribution.ranks import Ranks
from accel_migrate.analysis.distribution.replacements import ACCELERATOR, Replacement
from accel_migrate.analysis.evaluation.evaluation import Evaluation
from accel_migrate.analysis.values.provenance import NotMigrated
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.scopes import Module

CODE = "AM705"
ADDING_UP = {
    "torch.distributed.all_reduce": ("tensor", "op", "group", "async_op"),
    # Where the processes beside `dst` are promised nothing: they get the figure too.
    "torch.distributed.reduce": ("tensor", "dst", "op", "group", "async_op"),
}
_REDUCTIONS = {"SUM": "sum", "AVG": "mean", "MAX": "max", "MIN": "min"}


def collective(
    ranks: Ranks, module: Module, call: ast.Call, name: str, evaluations: list[Evaluation]
) -> Iterator[Replacement]:
    """What a call of torch.distributed becomes; raises NotMigrated for one without a counterpart."""
    statement = module.statement(call)
    alone = isinstance(statement, ast.Expr) and statement.value is call
    if name in ("barrier", "monitored_barrier") and alone and not any(k.arg == "group" for k in call.keywords):
        yield Replacement(CODE, module, call, f"{ACCELERATOR}.wait_for_everyone()", "waits for everyone")
    elif f"torch.distributed.{name}" in ADDING_UP and alone:
        yield _reduced(ranks, module, call, ADDING_UP[f"torch.distributed.{name}"], statement, evaluations)
    else:
        raise NotMigrated(
            f"torch.distributed.{name}() has no counterpart that is the same in every case; use accelerator.gather, "
            "reduce or broadcast there by hand",
            (module, call),
        )


def _reduced(
    ranks: Ranks,
    module: Module,
    call: ast.Call,
    parameters: tuple[str, ...],
    statement: ast.stmt,
    evaluations: list[Evaluation],
) -> Replacement:
    said = dict(zip(parameters, call.args))
    said |= {k.arg: k.value for k in call.keywords if k.arg is not None}
    tensor = said.get("tensor")
    operation = unparse(said["op"]).rpartition(".")[2] if "op" in said else "SUM"
    waits = "async_op" not in said or unparse(said["async_op"]) == "False"
    if not isinstance(tensor, ast.Name | ast.Attribute) or operation not in _REDUCTIONS or "group" in said or not waits:
        raise NotMigrated(f"`{unparse(call)}` has no counterpart that is the same in every case", (module, call))
    divided = is_divided(ranks, module, statement, tensor)
    if is_evaluated(module, statement, evaluations) and not divided:
        return Replacement(CODE, module, statement, None, "every process has the figure of all samples already")
    quote = '"' if module.source.text.count('"') >= module.source.text.count("'") else "'"
    name = unparse(tensor)
    reduced = f"{ACCELERATOR}.reduce({name}, reduction={quote}{_REDUCTIONS[operation]}{quote})"
    if _belongs_to_caller(module, statement, tensor):
        return Replacement(CODE, module, call, f"{name}.copy_({reduced})", "reduces over processes, in place")
    return Replacement(CODE, module, call, f"{name} = {reduced}", "reduces over processes")


def is_divided(ranks: Ranks, module: Module, statement: ast.stmt, tensor: ast.expr) -> bool:
    """Whether the sum is divided by the number of processes further down, so that it is a mean."""
    block = module.block(statement)
    for later in block[block.index(statement) + 1 :]:
        if isinstance(later, ast.If):
            continue  # at times is not always
        for node in module.walk(later):
            divisor, divided = _division(node)
            if divisor is None:
                continue
            counts = ranks.attribute(module, divisor) == "num_processes" or _names_world(divisor)
            if counts and divided is not None and unparse(tensor) in unparse(divided):
                return True
    return False


def _division(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """What is divided by, and what is divided."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
        return node.value, node.target
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return node.right, node.left
    return None, None


def _names_world(node: ast.expr) -> bool:
    text = unparse(node).rpartition(".")[2]
    return text in ("world_size", "nprocs", "n_gpus", "ngpus", "num_gpus", "nproc", "get_world_size()", "num_processes")


def is_evaluated(module: Module, node: ast.AST, evaluations: list[Evaluation]) -> bool:
    """Whether a node is in a function that evaluates."""
    function = module.scope(node).function
    return any(e.loop.function is function and function is not None for e in evaluations)


def _belongs_to_caller(module: Module, statement: ast.stmt, tensor: ast.expr) -> bool:
    """A parameter that is not handed back: the caller looks at its own tensor afterwards."""
    variable = module.variable(tensor)
    if variable is None or not module.is_parameter(variable):
        return False
    function = module.scope(statement).function
    returned = module.returned(function) if function is not None else []
    return not any(module.variable(part) == variable for node in returned for part in module.walk(node))
