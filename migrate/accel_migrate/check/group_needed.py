"""AM966: nothing that needs a process group runs on one process, where no group is started any more."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accel_migrate.check.condition import Condition, at_places
from accel_migrate.check.divergence import ends_the_run
from accel_migrate.check.evidence import Evidence, Found, Side
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.sequence import follows

_DISTRIBUTED = "torch.distributed."
_STARTS = "torch.distributed.init_process_group"
_HARMLESS = frozenset(
    (
        "is_available",
        "is_initialized",
        "is_nccl_available",
        "is_gloo_available",
        "is_mpi_available",
        "get_default_backend_for_device",
        "init_process_group",
    )
)
_TELLS = re.compile(r"is_initialized|world|num_processes|distrib|dist|ddp|parallel|gpu|rank|size|multi", re.IGNORECASE)
_COUNTS = re.compile(r"world|num_processes|nprocs|count|size", re.IGNORECASE)
_DEEPEST = 6


def _gone(evidence: Evidence) -> list[tuple[Module, ast.Call]]:
    """The calls that started a group, of the files from which one disappeared."""
    there = {file.path: _starts(file) for file in evidence.after.involved}
    starts = [(file, call) for file in evidence.before.files for call in _starts(file)]
    return [
        (file, call)
        for file, call in starts
        if file.path in there and len(there[file.path]) < sum(other is file for other, _ in starts)
    ]


def _starts(file: Module) -> list[ast.Call]:
    return file.calls_of((_STARTS,))


def _found(evidence: Evidence) -> Found:
    side, gone = evidence.after, _gone(evidence)
    if not gone:
        return
    for file, call in side.calls:
        begins = (
            _runs_alone(side, file, call, frozenset()) if file in side.involved and _needs_group(file, call) else None
        )
        if begins is not None:
            message = f"`{unparse(call)[:60]}` would fail on one process, where no process group is started"
            yield *begins, message
    if any(_runs_alone(evidence.before, file, call, frozenset()) for file, call in gone):
        yield from _chosen(side)
    for file in side.involved:
        before = evidence.before.file(file.path)
        demands = [node for node, test in _demands(file) if "num_processes" in test and re.search(r"\b1\b", test)]
        if before is not None and len(demands) > sum(bool(_COUNTS.search(test)) for _, test in _demands(before)):
            yield file, demands[0], f"`{unparse(demands[0]).splitlines()[0][:60]}` would end the script on one process"


def _demands(file: Module) -> Iterator[tuple[ast.stmt, str]]:
    """Conditions by which a script ends: assertions, and `if`s with a branch that ends with an error or an exit."""
    for node in file.walk(file.tree, ast.Assert, ast.If):
        if isinstance(node, ast.Assert) or any(ends_the_run(branch) for branch in (node.body, node.orelse)):
            names = [file.variable(part) for part in walk(node.test) if isinstance(part, ast.Name)]
            values = [binding.value for name in names if name is not None for binding in file.bindings(name)]
            yield node, " ".join(unparse(part) for part in (node.test, *values) if part is not None)


def _needs_group(file: Module, call: ast.Call) -> bool:
    """A collective, a question about the group, or a DistributedSampler that asks the group for rank and size."""
    dotted = file.qualified(call.func) or ""
    name = dotted.rpartition(".")[2]
    if name.endswith("DistributedSampler"):
        told = {keyword.arg for keyword in call.keywords}
        return dotted.startswith("torch.") and not {"num_replicas", "rank"} <= told and len(call.args) < 3
    direct = dotted.startswith(_DISTRIBUTED) and dotted.count(".") == 2
    return direct and name[:1].islower() and name not in _HARMLESS


def _runs_alone(side: Side, file: Module, node: ast.AST, seen: frozenset[ast.AST]) -> tuple[Module, ast.AST] | None:
    """Where a run begins that comes to a node without asking, here or on the way, whether there are several processes."""
    if _asks(file, node):
        return None
    function = file.scope(node).frame.node
    if not isinstance(function, Function):
        return file, node
    if function in seen or len(seen) > _DEEPEST:
        return None
    if any(_may_ask(file, decorator) for decorator in getattr(function, "decorator_list", ())):
        return None
    sites = [site for site in side.above(function) if site.file in side.involved or not side.created]
    begins = (_runs_alone(side, site.file, site.call, seen | {function}) for site in sites)
    return next((place for place in begins if place is not None), None)


def _may_ask(file: Module, decorator: ast.expr) -> bool:
    """Whether a decorator may keep a function from running on one process: those of Python and torch do not."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    plain = isinstance(called, ast.Name) and called.id in ("staticmethod", "classmethod", "property")
    return not plain and not (file.qualified(called) or "").startswith("torch.")


def _asks(file: Module, node: ast.AST) -> bool:
    """A condition on processes around a node, or one above it in the function that returns."""
    for above in file.ancestors(node):
        if isinstance(above, ast.If | ast.IfExp | ast.While) and _TELLS.search(unparse(above.test)):
            return True
        if isinstance(above, ast.BoolOp) and any(_TELLS.search(unparse(part)) for part in above.values[:-1]):
            return True
        if isinstance(above, ast.Try):
            return True
        if isinstance(above, Function):
            return any(
                isinstance(part.body[-1], ast.Return | ast.Raise) and _TELLS.search(unparse(part.test))
                for part in file.walk(above, ast.If)
                if follows(file, part, node)
            )
    return False


def _chosen(side: Side) -> Found:
    """What the project builds only where the group is started: the original did so on one process as well."""
    for file in side.involved:
        for node in file.walk(file.tree, ast.If):
            if not node.orelse or not _is_started(file, node.test):
                continue
            for call in (part for statement in node.body for part in walk(statement)):
                if isinstance(call, ast.Call) and any(
                    made.kind == "class" for made in side.flows.made(file, call.func)
                ):
                    yield (
                        file,
                        call,
                        f"`{unparse(call)[:60]}` would not run on one process, where no process group is started",
                    )


def _is_started(file: Module, test: ast.expr) -> bool:
    return isinstance(test, ast.Call) and file.qualified(test.func) == "torch.distributed.is_initialized"


CONDITION = Condition(
    code="AM966",
    name="group_needed",
    summary="what needs a process group would run on one process without one",
    why="`init_process_group` is gone, and the Accelerator starts a group on several processes only. Collectives, "
    "questions about the group and DistributedSamplers that stay must ask first whether there are several processes. What asked "
    "for a launcher alone (`assert rank != -1`) does not end the script on one process.",
    example_before="accelerator = Accelerator()\nsampler = DistributedSampler(rows)",
    example_after="accelerator = Accelerator()\nsampler = DistributedSampler(rows) if accelerator.num_processes > 1 else None",
    find=at_places("AM966", _found),
)
