"""AM601: what is printed is seen once, because the launcher shows one process or because the script prints once itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.evaluation.by_batch import Summed
from accel_migrate.analysis.evaluation.counting import counter_of
from accel_migrate.analysis.evaluation.evaluation import Evaluation
from accel_migrate.analysis.notes.deeds import shows
from accel_migrate.analysis.storage.files import opens_log
from accel_migrate.analysis.values.sources import contents
from accel_migrate.edits import change, note, replace_callee
from accel_migrate.flow.nodes import called_name
from accel_migrate.flow.scopes import Module
from accel_migrate.plan import Change, Guard
from accel_migrate.rule import Context, Rule

CODE = "AM601"
_LOOKS = {
    "item",
    "format",
    "join",
    "len",
    "str",
    "repr",
    "int",
    "float",
    "round",
    "min",
    "max",
    "time",
    "now",
    "timedelta",
}
_LEVELS = {"debug", "info", "warning", "warn", "error", "critical", "exception", "log", "success"}


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    for owner, call in training.prints:
        if owner is module:
            spelled = training.accelerator(module, call)
            edit = replace_callee(module.source, call, f"{spelled}.print")
            yield change(context, CODE, call, "prints once on each machine", [edit], required=False)
    yield from _noted_when_printing_once(context) if context.settings.prints_once else _noted_when_launched(context)
    lines = [call for evaluation in training.evaluations for call in _of_own_batches(context, evaluation)]
    if lines:
        seen = "" if context.settings.prints_once else "; start with --show-ranks all to see those of all"
        message = (
            f"each process prints this for its own batches of the evaluation{_lines(lines)}, so the lines of the others are not "
            f"seen{seen}"
        )
        yield note(context, CODE, lines[0], message)


def _of_own_batches(context: Context, evaluation: Evaluation) -> list[ast.Call]:
    """What each round of an evaluation whose batches are dealt out prints of its batch, but for progress each so many rounds."""
    module, loop = context.module, evaluation.loop
    if not isinstance(evaluation, Summed) or loop.trains or loop.module is not module:
        return []
    stored = [n for n in module.walk(loop.statement, ast.Name) if isinstance(n.ctx, ast.Store)]
    summed = {n.id for n in stored if isinstance(module.parents[n], ast.AugAssign)}
    counted = {*summed, counter_of(module, loop.statement)}
    own = {n.id for n in stored} - counted
    replayed = {node for replay in evaluation.replays for one in replay.statements for node in module.walk(one)}
    return [
        call
        for call in module.walk(loop.statement, ast.Call)
        if (shows(module, call) or _is_logged(context, call))
        and call not in replayed
        and not own.isdisjoint(_named(module, call))
        and not any(_now_and_then(module, above, counted) for above in module.ancestors(call))
    ]


def _named(module: Module, node: ast.AST) -> set[str]:
    return {name.id for name in module.walk(node, ast.Name)}


def _now_and_then(module: Module, above: ast.AST, counted: set[str | None]) -> bool:
    """`if i % 50 == 0`, `if shown < 3`."""
    if not isinstance(above, ast.If):
        return False
    return not counted.isdisjoint(_named(module, above.test)) or any(
        isinstance(part, ast.Mod) for part in module.walk(above.test)
    )


def _noted_when_launched(context: Context) -> Iterator[Change]:
    """The launcher shows the first process of each machine; what differs from process to process is not all seen."""
    module = context.module
    own = [call for call in module.calls if shows(module, call) and _is_its_own(context, call)]
    if own:
        message = (
            f"not every process prints the same here{_lines(own)}, and accel launch shows the first of each machine; start "
            "with --show-ranks all to see every line"
        )
        yield note(context, CODE, own[0], message)
    for call in module.calls:
        if opens_log(module, call) and _by_all(context, call):
            message = (
                "every process writes to this log file, N lines for one; open it where accelerator.is_main_process is true, "
                "or give each process a file of its own"
            )
            yield note(context, CODE, call, message)


def _noted_when_printing_once(context: Context) -> Iterator[Change]:
    """Each line that the script still writes on every process."""
    training, module = context.training, context.module
    once = {call for _, call in training.prints}
    many = [call for call in module.calls if shows(module, call) and call not in once and _by_all(context, call)]
    for call in [call for call in many if _is_statement(module, call)]:
        spelled = training.ready(module, call)
        if spelled is not None:
            guard = Guard(module.statement(call), f"{spelled}.is_local_main_process")
            yield change(context, CODE, call, "written once on each machine", [guard], required=False)
            many.remove(call)
    early = [call for call in many if training.ready(module, call) is None]
    for calls, why in (
        (early, ": the Accelerator is not made yet, or not in reach"),
        ([c for c in many if c not in early], ""),
    ):
        if calls:
            message = (
                f"every process prints this{_lines(calls)}{why}; print it where accelerator.is_local_main_process is true to "
                "have it once"
            )
            yield note(context, CODE, calls[0], message)
    logged = [call for call in module.calls if _is_logged(context, call) and _by_all(context, call)]
    if logged:
        message = (
            f"every process logs this{_lines(logged)}; set a higher level where accelerator.is_main_process is not true to "
            "have it once"
        )
        yield note(context, CODE, logged[0], message)


def _is_its_own(context: Context, call: ast.Call) -> bool:
    """Whether a process tells of itself, or is not the one that is shown."""
    module, flow = context.module, context.training.flow
    guard = flow.guard(module, call)
    if isinstance(guard, ast.If) and isinstance(guard.test, ast.Compare):
        other = isinstance(guard.test.ops[0], ast.Eq | ast.NotEq | ast.Gt) and not flow.picks_main(module, guard.test)
        return other and any(module.holds(statement, call) for statement in guard.body)
    told = [part for argument in call.args for part in module.walk(argument) if isinstance(part, ast.expr)]
    return _by_all(context, call) and any(flow.depends(module, part) for part in told)


def _is_statement(module: Module, call: ast.Call) -> bool:
    """`sys.stdout.write("..." % loss.item())` by itself, where all that is called for the text only looks."""
    inner = [node for node in module.walk(call, ast.Call) if node is not call]
    names = {called_name(node) for node in inner}
    return isinstance(module.parents[call], ast.Expr) and names <= _LOOKS and module.qualified(call.func) is not None


def _is_logged(context: Context, call: ast.Call) -> bool:
    """`logging.info(...)`, or the same of a logger."""
    module = context.module
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _LEVELS:
        return False
    if (module.qualified(call.func) or "").rpartition(".")[0] in ("logging", "loguru.logger", "absl.logging"):
        return True
    return _is_logger(context, module, call.func.value)


def _is_logger(context: Context, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """`logging.getLogger(...)`, or what a function of the project gives back that makes one."""
    for owner, part in contents(context.script.graph, module, node):
        if isinstance(part, ast.Call) and owner.qualified(part.func) == "logging.getLogger":
            return True
        made = context.script.roles.target(owner, part) if isinstance(part, ast.Call) and depth < 3 else None
        if made is not None and any(_is_logger(context, made.module, each, depth + 1) for each in made.returned):
            return True
    return False


def _by_all(context: Context, call: ast.Call) -> bool:
    """Whether every process of a training runs a call: it is not in a function that nothing calls, nor under a guard."""
    module, graph = context.module, context.script.graph
    function = module.scope(call).function
    called = function is None or bool(graph.all_sites.get(function))
    return called and not context.training.flow.only_some(module, call)


def _lines(calls: list[ast.Call]) -> str:
    lines = list(dict.fromkeys(call.lineno for call in calls))
    if len(lines) == 1:
        return ""
    more = f" and {len(lines) - 4} more" if len(lines) > 4 else ""
    return f" (lines {', '.join(map(str, lines[:4]))}{more})"


RULE = Rule(
    code=CODE,
    summary="`print` is left to the launcher, or becomes `accelerator.print`",
    why="Every process runs the script. `accel launch` and `notebook_launcher` show what the first process of each machine "
    "writes, so `print`, loggers and progress bars stay as they are. Under torchrun or srun each line would appear N times: "
    "for these, and for `--target accelerate`, `--prints once` has the script print once, as shown here.",
    example_before='print(f"epoch {epoch}")',
    example_after='accelerator.print(f"epoch {epoch}")',
    find=find,
)
