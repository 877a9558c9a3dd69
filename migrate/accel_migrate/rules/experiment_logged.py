"""AM603: one process writes to TensorBoard and to Weights & Biases."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.notes.weights_by_hand import weights_by_hand
from accel_migrate.analysis.storage.files import is_forward, opens_events, tracker
from accel_migrate.analysis.values.sources import contents
from accel_migrate.edits import add_argument, change, note, quoted, replace_node
from accel_migrate.emit import silent_writers
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.import_lines import import_line
from accel_migrate.plan import Change, Edit, Guard
from accel_migrate.rule import Context, Rule

CODE = "AM603"


def find(context: Context) -> Iterator[Change]:
    module, flow = context.module, context.training.flow
    opened = False
    silent = [call for each in context.training.modules for call in silent_writers(context, each)]
    yield from _silenced(context, [call for call in module.calls if call in silent])
    for call in module.calls:
        starts = module.qualified(call.func) == "wandb.init"
        if not starts and (opened or call in silent or not opens_events(context.script.roles, module, call)):
            continue
        if flow.on_some(module, call):
            continue  # made under a guard of the script's own, which its uses have too
        if starts:
            yield from _run_started(context, call)
        else:
            opened = True
            message = (
                "every process opens an event file of its own here; make the writer where accelerator.is_main_process is true "
                "to have one"
            )
            yield note(context, CODE, call, message)
    yield from _written(context, silent)
    for function in module.functions:
        if any((module.qualified(_called(d)) or "") == "hydra.main" for d in function.decorator_list):  # type: ignore[attr-defined]
            message = (
                "hydra writes a log and its settings from every process, into one folder; hydra/job_logging=stdout and "
                "hydra.output_subdir=null on the command line turn that off"
            )
            yield note(context, CODE, function, message)
    others = [(c, name) for c in module.calls if (name := tracker(module, c)) and not flow.on_some(module, c)]
    if others:
        call, name = others[0]
        message = f"every process logs to {name}; start and use it where accelerator.is_main_process is true"
        if isinstance(module.parents[call], ast.withitem):
            started = f"`with {unparse(call)} if accelerator.is_main_process else contextlib.nullcontext():`"
            message = (
                f"every process logs to {name}; {started} starts it on one, and what logs needs that condition too"
            )
        yield note(context, CODE, call, message)


def _called(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _run_started(context: Context, call: ast.Call) -> Iterator[Change]:
    """A run that is disabled takes every call and does nothing, so nothing else needs a guard."""
    training, module = context.training, context.module
    spelled = training.ready(module, call)
    said = {keyword.arg: keyword.value for keyword in call.keywords}
    if None in said or spelled is None:
        made = "" if spelled is not None else " once the Accelerator is made"
        message = f'every process starts a run of its own; pass mode=None if accelerator.is_main_process else "disabled"{made}'
        yield note(context, CODE, call, message)
        return
    source = module.source
    disabled = quoted(source, "disabled")
    text = f"{{}} if {spelled}.is_main_process else {disabled}"
    mode = said.get("mode")
    if mode is not None:
        own = source.code(mode)
        edit = replace_node(source, mode, text.format(f"({own})" if isinstance(mode, ast.IfExp | ast.Lambda) else own))
    else:
        edit = add_argument(source, call, f"mode={text.format(None)}")
    yield change(context, CODE, call, "the other processes log nothing", [edit])


def _silenced(context: Context, silent: list[ast.Call]) -> Iterator[Change]:
    """A writer of one process; what stands in for it on the others takes every call and does nothing."""
    training, module = context.training, context.module
    for call in silent:
        source = module.source
        text = f"{source.code(call)} if {training.ready(module, call)}.is_main_process else Silent()"
        edits: list[Edit] = [replace_node(source, call, text)]
        if module is not training.start.module and call is silent[0]:
            edits.append(import_line(module, module.statement(call), f"from {context.settings.target} import Silent"))
        yield change(context, CODE, call, "one process writes events", edits)


def _written(context: Context, silent: list[ast.Call]) -> Iterator[Change]:
    """Calls of a writer come under a guard; the writers of the other processes stay empty."""
    training, module = context.training, context.module
    missed: list[ast.Call] = []
    for used in _uses(context, silent):
        spelled = training.ready(module, used)
        statement = module.parents[used]
        if isinstance(statement, ast.Expr) and spelled is not None and not _needs_all(context, used):
            guard = Guard(statement, f"{spelled}.is_main_process")
            yield change(context, CODE, used, "one process writes events", [guard], required=False)
        else:
            missed.append(used)
    if missed:
        lines = ", ".join(str(line) for line in sorted({used.lineno for used in missed}))
        needed = any(_needs_all(context, used) for used in missed)
        first = ", and run the model, or take its weights or gradients, above that, on all processes" if needed else ""
        message = (
            f"every process writes events (line {lines}); write them where accelerator.is_main_process is true{first}"
        )
        yield note(context, CODE, missed[0], message)


def _uses(context: Context, silent: list[ast.Call]) -> list[ast.Call]:
    """`writer.add_scalar(...)` that all processes come by, of a writer that was made here or handed over."""
    module = context.module
    return [
        call
        for call in module.calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr.startswith("add_")
        and not context.training.flow.only_main(module, call)
        and any(
            isinstance(part, ast.Call) and part not in silent and opens_events(context.script.roles, owner, part)
            for owner, part in contents(context.script.graph, module, call.func.value)
        )
    ]


def _needs_all(context: Context, call: ast.Call) -> bool:
    """Whether what is written runs a model, or takes its weights or gradients: every process must, where they are sharded."""
    by_hand = weights_by_hand(context.script, context.training, context.module, with_gradients=True)
    return any(
        isinstance(node, ast.Call) and (node in by_hand or is_forward(context.script.roles, context.module, node))
        for node in walk(call)
    ) or any(context.training.holds(context.module.variable(argument)) for argument in call.args)


RULE = Rule(
    code=CODE,
    summary="log experiments on the main process",
    why="N processes would start N runs, and write every point of a curve N times. A disabled run of wandb takes all calls, so "
    "one argument is enough; a SummaryWriter has no such mode, so Silent() stands in for it on the others, which does "
    "nothing. Where a script asks its writer for something, the calls come under a guard.",
    example_before='wandb.init(project="digits")\nwriter = SummaryWriter("runs")',
    example_after='wandb.init(project="digits", mode=None if accelerator.is_main_process else "disabled")\n'
    'writer = SummaryWriter("runs") if accelerator.is_main_process else Silent()',
    find=find,
)
