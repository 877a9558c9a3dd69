"""AM954: nothing in which all processes must meet depends on the rank."""

from __future__ import annotations

import ast
from collections.abc import Callable

from accel_migrate.check.condition import Condition, at_places
from accel_migrate.check.evidence import Evidence, Found, Side, is_accelerator, step_of
from accel_migrate.flow.calls import Made, Place
from accel_migrate.flow.nodes import opposite, unparse, walk
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module

MEETINGS = (
    "prepare",
    "backward",
    "gather",
    "gather_for_metrics",
    "sum_for_metrics",
    "reduce",
    "get_state_dict",
    "save_state",
    "load_state",
    "save_model",
    "wait_for_everyone",
    "clip_grad_norm_",
    "broadcast",
    "pad_across_processes",
    "main_process_first",
    "local_main_process_first",
    "end_training",
)
_RANKS = ("is_main_process", "is_local_main_process", "is_last_process", "process_index", "local_process_index")
_VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
)


_OF_OPTIMIZERS = ("zero_grad", "param_groups")  # what schedules do not have
_FILES = (
    "os.path.exists",
    "os.path.isfile",
    "os.path.isdir",
    "os.path.lexists",
    "os.listdir",
    "os.access",
    "glob.glob",
)


def _found(evidence: Evidence) -> Found:
    """Calls of the result that only some processes would come to, with what stands in the way."""
    side = evidence.after
    guards = side.once(Guards)
    yield from _waits_for_files(side)
    for file, call in side.calls:
        what = meeting(side, file, call)
        guard = guards.of(file, call) if what else None
        if guard is not None and not _is_met(side, guards, file, call):
            yield (
                file,
                call,
                f"{what} depends on the rank, by `{unparse(guard)}`: the other processes would wait for ever",
            )
    yield from _bare_states(side, guards)
    yield from _optimizer_states(side, guards)
    for file in side.files:
        for node in file.walk(file.tree, ast.For):
            if side.flows.made(file, node.iter, "prepared"):
                guard = guards.of(file, node)
                if guard is not None:
                    yield (
                        file,
                        node,
                        f"the loop over the prepared {unparse(node.iter)} depends on the rank, by `{unparse(guard)}`",
                    )


def _is_met(side: Side, guards: Guards, file: Module, call: ast.Call) -> bool:
    """`if not main: wait` above what one process does first, and `if main: wait` below it: each waits once."""
    choice = file.parents[file.statement(call)]
    if not _only_waits(choice) or guards.of(file, choice) is not None:
        return False
    block = file.block(choice)  # type: ignore[arg-type]
    pair = [each for each in block if each is choice or (_only_waits(each) and _are_opposite(each, choice))]
    if len(pair) != 2:
        return False
    between = block[block.index(pair[0]) + 1 : block.index(pair[1])]
    inner = [node for statement in between for node in walk(statement)]
    calls = [(file, node) for node in inner if isinstance(node, ast.Call)]
    for _, each in calls:
        for function in side.flows.callees.get(each, ()):
            owner = side.flows.function_file[function]
            calls += [(owner, c) for c in owner.walk(function, ast.Call) if (owner, c) not in calls]
    leaves = any(isinstance(node, ast.Return | ast.Break | ast.Continue) for node in inner)
    return not leaves and not any(meeting(side, at, each) for at, each in calls)


def _only_waits(node: ast.AST) -> bool:
    match node:
        case ast.If(body=[ast.Expr(value=ast.Call(func=ast.Attribute(attr="wait_for_everyone")))], orelse=[]):
            return True
    return False


def _are_opposite(first: ast.AST, second: ast.AST) -> bool:
    return (
        isinstance(first, ast.If)
        and isinstance(second, ast.If)
        and unparse(opposite(first.test)) == unparse(second.test)
    )


def _waits_for_files(side: Side) -> Found:
    """Waiting under a question for a file: one process may ask before another writes it, and would not wait."""
    waits = list(side.asked("wait_for_everyone"))
    guards = Guards(side, _asks_for_file) if waits else None
    for file, call in waits:
        guard = guards.of(file, call) if guards is not None else None
        if guard is not None:
            yield (
                file,
                call,
                f"waiting for all depends on `{unparse(guard)}`, which one process may ask before another writes",
            )


def _bare_states(side: Side, guards: Guards) -> Found:
    """The weights of a prepared model, or of a part of it, taken past the Accelerator by one process."""
    models = set[Made]().union(*side.runs_prepared.values())
    roots = [
        side.flows.place(file, call.args[index])
        for file, call in side.asked("prepare")
        for index in range(len(call.args))
        if any(made.node is call and made.index == index for made in models)
    ]
    bare = side.flows.reached(roots)
    for file, call in side.calls:
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr == "state_dict" and not call.args:
            late = any(side.may_follow(file, call, prepare) for _, prepare in side.asked("prepare"))
            if late and side.flows.place(file, function.value) in bare and guards.of(file, call) is not None:
                yield (
                    file,
                    call,
                    f"{unparse(call)} is read by one process, which has only a part of sharded weights",
                )


def _optimizer_states(side: Side, guards: Guards) -> Found:
    """The state of a prepared optimizer: where weights are sharded it is gathered from all processes."""
    optimizers = {
        made
        for file in side.files
        for node in file.walk(file.tree, ast.Attribute)
        if node.attr in _OF_OPTIMIZERS
        for made in side.flows.made(file, node.value, "prepared")
    }
    for file, call in side.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "state_dict":
            asked = optimizers & side.flows.made(file, call.func.value, "prepared")
            guard = guards.of(file, call) if asked else None
            if guard is not None:
                yield (
                    file,
                    call,
                    f"{unparse(call)} depends on the rank, by `{unparse(guard)}`: sharded states need all processes",
                )


def meeting(side: Side, file: Module, call: ast.Call) -> str:
    """What all processes must come to, if a call is that."""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr in MEETINGS and is_accelerator(function.value):
        return f"{function.attr}()"
    runs = side.wraps_models and bool(side.flows.made(file, function, "prepared"))  # a wrapper sends buffers around
    return f"the forward pass of {unparse(function)}" if runs else ""


class Guards:
    """Which statements run on some processes only, because a test on the way to them depends on the rank, or the like."""

    def __init__(self, side: Side, differs: Callable[[Module, ast.expr], bool] | None = None) -> None:
        self._side = side
        self._differs = differs or _is_rank
        self._ranked = self._places()
        self._functions: dict[Function, ast.expr] = {}
        pending = [(f, c) for f, c in side.calls if side.flows.callees.get(c)]
        changed = True
        while changed:
            changed = False
            for file, call in pending:
                functions = side.flows.callees[call] - self._functions.keys()
                guard = self.of(file, call) if functions else None
                if guard is not None:
                    changed = True
                    self._functions.update(dict.fromkeys(functions, guard))

    def of(self, file: Module, node: ast.AST) -> ast.expr | None:
        """The test on the rank that decides whether a node runs."""
        if not self._ranked:
            return None
        scope = file.scope(node).frame
        graph = self._side.graph(scope)
        at = node
        while not isinstance(at, ast.stmt):  # `rank == 0 and evaluate()`, `evaluate() if rank == 0 else None`
            above = file.parents[at]
            if isinstance(above, ast.IfExp) and at is not above.test and self._depends(file, above.test):
                return above.test
            if isinstance(above, ast.BoolOp):
                for earlier in above.values[: above.values.index(at)] if at in above.values else ():
                    if self._depends(file, earlier):
                        return earlier
            if isinstance(above, ast.Lambda):
                return self._functions.get(above)
            at = above
        step = step_of(file, at, graph)
        if step is not None and graph.is_reached(step):
            for decision in graph.control_dependences(step):
                if decision.test is not None and self._depends(file, decision.test):
                    return decision.test
        function = scope.node
        return self._functions.get(function) if isinstance(function, Function) else None

    def _depends(self, file: Module, test: ast.expr) -> bool:
        return self._side.flows.place(file, test) in self._ranked

    def _places(self) -> set[Place]:
        """Every place that a rank gets to, by value or because it is set under a condition on one."""
        flows = self._side.flows
        seeds = {
            flows.place(f, n)
            for f in self._side.files
            for n in f.walk(f.tree, ast.Attribute, ast.Call, ast.Subscript)
            if isinstance(n, ast.expr) and self._differs(f, n)
        }
        if not seeds:
            return set()
        self._ranked = flows.reached(seeds)
        flags = [
            (file, node)
            for file in self._side.files
            for node in file.walk(file.tree, ast.Assign)
            if isinstance(node.value, ast.Constant)
        ]
        self._functions = {}
        while True:
            found = {
                flows.variable(file.scope(node), target.id)
                if isinstance(target, ast.Name)
                else flows.field(file, target)
                for file, node in flags
                for target in node.targets
                if isinstance(target, ast.Name | ast.Attribute) and self.of(file, node) is not None
            }
            if found <= seeds:
                return self._ranked
            seeds |= found
            self._ranked = flows.reached(seeds)


def _asks_for_file(file: Module, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    dotted = file.qualified(node.func)
    method = node.func.attr if isinstance(node.func, ast.Attribute) and dotted is None else ""
    return dotted in _FILES or (method in ("exists", "is_file", "is_dir") and not node.args)


def _is_rank(file: Module, node: ast.expr) -> bool:
    match node:
        case ast.Attribute(attr=name) if name in _RANKS:
            return is_accelerator(node.value)
        case ast.Call(func=function) if (file.qualified(function) or "").startswith("torch.distributed"):
            return (file.qualified(function) or "").endswith(("get_rank", "get_node_local_rank"))
        case ast.Call(args=[ast.Constant(value=name), *_]) if name in _VARIABLES:
            return (file.qualified(node.func) or "") in ("os.getenv", "os.environ.get")
        case ast.Subscript(slice=ast.Constant(value=name)) if name in _VARIABLES:
            return file.qualified(node.value) == "os.environ"
    return False


CONDITION = Condition(
    code="AM954",
    name="collective_under_rank",
    summary="some processes would wait for ever for the others",
    why="Gathering, collecting weights, waiting and the forward pass of a prepared model need every process. "
    "None of them may stand under a condition that depends on the rank, however the rank came there: by a "
    "variable, an attribute, a parameter, an early return. And one process alone must not read the "
    "weights of the bare model, or the state of an optimizer: where they are sharded it has a part of them.",
    example_before="if accelerator.is_main_process:\n    torch.save(accelerator.get_state_dict(model), path)",
    example_after="weights = accelerator.get_state_dict(model)\nif accelerator.is_main_process:\n    torch.save(weights, path)",
    find=at_places("AM954", _found),
)
