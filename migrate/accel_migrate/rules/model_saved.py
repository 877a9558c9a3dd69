"""AM501: weights are saved once, by the main process, with keys that any number of processes can load."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accel_migrate.analysis.storage.files import Save
from accel_migrate.analysis.storage.states import Lifted, StateTaken
from accel_migrate.analysis.values.roles import Role
from accel_migrate.analysis.values.sources import contents
from accel_migrate.edits import change, note, replace_callee, replace_node
from accel_migrate.flow.nodes import called_name, unparse
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.torch_api import itself
from accel_migrate.plan import Change, Edit, Guard, Insert, Replace, Unwrap
from accel_migrate.rule import Context, Rule

CODE = "AM501"
_ON_FIRST = (
    "one process of each machine wrote the file, and now that of the first machine alone does; where machines share no folder "
    "and each reads it back, make the Accelerator with project_config=ProjectConfiguration(save_on_each_node=True)"
)
_SAVES = re.compile(r"(^|_)(save|saves|checkpoint|dump)(_|$)", re.I)


def find(context: Context) -> Iterator[Change]:
    storage, module = context.training.storage, context.module
    for save in storage.saves:
        if save.module is module:
            yield _saved(context, save)
    everywhere = [save for save in storage.saves if save.module is module and save.plain and storage.loads]
    for save in [each for each in everywhere if _once_on_each_machine(context, module, each.call, 0)][:1]:
        yield note(context, CODE, save.call, _ON_FIRST)
    whole = {value for save in storage.saves for owner, value in _whole_models(context, save) if owner is module}
    if whole:
        yield _as_it_is(context, min(whole, key=module.source.start))
    wrapped = whole | set(_handed_to_helpers(context)) if context.training.wraps_models else ()
    for value in sorted(wrapped, key=module.source.start):
        text = f"{context.training.accelerator(module, value)}.unwrap_model({module.source.code(value)})"
        edit = replace_node(module.source, value, text)
        yield change(context, CODE, value, "the model itself is saved", [edit])
    left = [call for owner, call in storage.left if owner is module]
    if left:
        yield _left(context, min(left, key=module.source.start))
    for lifted in storage.lifted:
        if lifted.module is module:
            edits = [_without_guard(context, lifted)]
            yield change(context, CODE, lifted.guard, "all processes collect the weights", edits)
    for taken in storage.taken:
        if taken.module is not module or taken.call in context.training.gone:
            continue
        if taken.ahead is not None:
            edits = _taken_ahead(context, taken.ahead, taken)
            what = "weights" if taken.of_model else "state of the optimizer"
            yield change(context, CODE, taken.call, f"all processes collect the {what}", edits)
        elif taken.of_model:
            edits = _collected(context, taken)
            wraps = context.training.wraps_models
            kind = "weights without a wrapper's prefix" if wraps else "all weights, also where they are sharded"
            yield change(context, CODE, taken.call, kind, edits)


def _once_on_each_machine(context: Context, module: Module, call: ast.Call, depth: int) -> bool:
    """Whether one process of each machine comes to a call, by a guard around it or around a call of its function."""
    training = context.training
    guard, function = training.flow.guard(module, call), module.scope(call).function
    if isinstance(guard, ast.If) and any(
        replaced.module is module and module.holds(guard.test, replaced.node)
        for replaced in training.distribution.replacements
        if replaced.text is not None and "is_local_main_process" in replaced.text
    ):
        return True
    sites = context.script.graph.sites.get(function, ()) if function is not None and depth < 3 else ()
    return any(_once_on_each_machine(context, caller, site, depth + 1) for caller, site in sites)


def _as_it_is(context: Context, model: ast.expr) -> Change:
    """One note for the models of a file that are saved as objects."""
    message = (
        "the file holds the model as an object: where its weights are sharded, by FSDP or ZeRO 3, no process has all of "
        "them, and the run stops here with an error; save model.state_dict() for those"
    )
    wrappings = context.training.distribution.wrappings
    if wrappings and not (isinstance(model, ast.Attribute) and model.attr == "module"):
        kind = "DataParallel" if wrappings[0].is_data_parallel else "DistributedDataParallel"
        message += (
            f"; files that were saved so far may hold it inside a {kind}: of such a file take the object's .module"
        )
    return note(context, CODE, model, message)


def _left(context: Context, call: ast.Call) -> Change:
    """One note for the weights of a file that one process takes alone."""
    message = (
        "where weights are sharded, by FSDP or ZeRO 3, no process has all of them, and the run stops here with an error; "
        "have every process take accelerator.get_state_dict(model), and accelerator.save() write it"
    )
    return note(context, CODE, call, message)


def _collected(context: Context, taken: StateTaken) -> list[Edit]:
    """`get_state_dict(...)` around the owner, which other rules may edit in turn."""
    source, call, owner = context.module.source, taken.call, taken.owner
    spelled = context.training.accelerator(context.module, call)
    opening = Replace(source.start(call), source.start(owner), f"{spelled}.get_state_dict(")
    return [opening, Replace(source.end(owner), source.end(call), ")")]


def _handed_to_helpers(context: Context) -> Iterator[ast.expr]:
    """`save_checkpoint({"net": net, ...})`: what a helper takes the state of must be the model itself."""
    module, training = context.module, context.training
    for call in module.calls:
        name = called_name(call)
        if not _SAVES.search(name) or module.qualified(call.func) is not None:
            continue
        for argument in (*call.args, *[keyword.value for keyword in call.keywords]):
            for value in map(itself, argument.values) if isinstance(argument, ast.Dict) else ():
                variable = module.variable(value)
                ready = training.ready(module, value) is not None and training.timing.after_prepare(module, value)
                if ready and training.holds(variable) and context.script.roles.of(variable) & Role.MODEL:
                    yield value


def _saved(context: Context, save: Save) -> Change:
    module, training = context.module, context.training
    spelled = training.accelerator(module, save.call)
    edits: list[Edit] = []
    if save.plain:
        edits.append(replace_callee(module.source, save.call, f"{spelled}.save"))
    else:
        # `accelerator.save` takes a path; an open file, or options of the pickle, stay and get a guard.
        edits.append(Guard(save.statement, f"{spelled}.is_main_process"))
    return change(context, CODE, save.call, "one process writes the file", edits)


def _taken_ahead(context: Context, statement: ast.stmt, taken: StateTaken) -> list[Edit]:
    """The weights are collected in front of the guard, by all processes; all that one guard needs under one condition."""
    name, line = _kept_state(context, taken)
    edits: list[Edit] = [replace_node(context.module.source, taken.call, name)]
    states = context.training.storage.taken
    together = [one for one in states if one.module is taken.module and one.ahead is statement]
    alike = [one for one in together if one.asked == taken.asked] if taken.asked else [taken]
    statements = []
    if taken is alike[0]:
        lines = [_kept_state(context, one)[1] for one in alike]
        statements = [f"if {' and '.join(taken.asked)}:\n    " + "\n    ".join(lines)] if taken.asked else [line]
    lifted = [one for one in together if one.lifted]
    if taken.lifted and taken is lifted[-1]:
        statements.append(
            f"if not {context.training.accelerator(context.module, taken.call)}.is_main_process:\n    return"
        )
    return [Insert(statement, tuple(statements), "before"), *edits] if statements else edits


def _kept_state(context: Context, taken: StateTaken) -> tuple[str, str]:
    """The variable that holds a state, and the statement that collects it."""
    module = context.module
    owner = _either(taken.owner)
    name = f"{module.source.code(itself(owner)).rpartition('.')[2]}_state"
    while module.resolve(name, module.scope(taken.call)) is not None:
        name += "_dict"
    spelled = context.training.accelerator(module, taken.call)
    code = module.source.code(taken.call)
    return name, f"{name} = {f'{spelled}.get_state_dict({_bare(context, owner)})' if taken.of_model else code}"


def _either(owner: ast.expr) -> ast.expr:
    """The model of `model.module if several else model`, whose state is the same."""
    if isinstance(owner, ast.IfExp):
        sides = (owner.body, owner.orelse)
        for side, other in (sides, sides[::-1]):
            if isinstance(other, ast.Attribute) and other.attr == "module" and unparse(other.value) == unparse(side):
                return side
    return owner


def _without_guard(context: Context, lifted: Lifted) -> Edit:
    """The part that asks for the main process goes, with the `and` beside it, or the whole guard."""
    if lifted.is_whole:
        return Unwrap(lifted.guard)
    source, test = context.module.source, lifted.guard.test
    assert isinstance(test, ast.BoolOp)
    kept = [part for part in test.values if part not in lifted.parts]
    if len(lifted.parts) == 1 and lifted.parts[0] in (test.values[0], test.values[-1]):
        start, end = _beside(test, lifted.parts[0])
        gap = source.text[source.end(start) : source.start(end)]
        if gap.split() == ["and"]:  # no brackets between the two
            if end is lifted.parts[0]:
                return Replace(source.end(start), source.end(end), "")
            return Replace(source.start(start), source.start(end), "")
    return replace_node(source, test, " and ".join(_in_and(source.code(part), part) for part in kept))


def _beside(test: ast.BoolOp, part: ast.expr) -> tuple[ast.expr, ast.expr]:
    """The first or last part of a condition, with its neighbour, in reading order."""
    return (test.values[0], test.values[1]) if part is test.values[0] else (test.values[-2], test.values[-1])


def _in_and(text: str, part: ast.expr) -> str:
    return f"({text})" if isinstance(part, ast.BoolOp | ast.IfExp) and not text.startswith("(") else text


def _bare(context: Context, owner: ast.expr) -> str:
    """The owner of a state as code in front of the guard: a part is a part of the model itself."""
    training, module = context.training, context.module
    path: list[str] = []
    root = owner
    while isinstance(root, ast.Attribute) and not training.holds(module.variable(root)):
        path.append(root.attr)
        root = root.value
    if not path or not training.holds(module.variable(root)):
        return module.source.code(owner)
    model = module.source.code(root)
    if training.wraps_models:
        model = f"{training.accelerator(module, owner)}.unwrap_model({model})"
    return ".".join([model, *[name for name in reversed(path) if name != "module"]])


def _whole_models(context: Context, save: Save) -> Iterator[tuple[Module, ast.expr]]:
    """Prepared models that are saved as they are: `torch.save(model, ...)`, or somewhere in what is saved."""
    training, roles = context.training, context.script.roles
    for module, value in contents(context.script.graph, save.module, save.value) if save.value is not None else ():
        model = itself(value)
        inner = isinstance(model, ast.Attribute) and model.attr == "module" and not training.wraps_models
        named = model.value if inner and training.distribution.wrappings else model  # type: ignore[attr-defined]
        variable = module.variable(named) if isinstance(named, ast.Name | ast.Attribute) else None
        if variable not in training.storage.models or not roles.of(variable) & Role.MODEL:
            continue
        parent = module.parents[value]
        kept = isinstance(parent, ast.Dict | ast.Tuple | ast.List | ast.keyword) or (
            isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Subscript)
        )
        if (kept or value is save.value) and training.ready(module, value) is not None:
            if training.timing.meets(module, value):
                yield module, model


RULE = Rule(
    code=CODE,
    summary="save through the Accelerator",
    why="Every process runs the script, and only one may write a file. `get_state_dict` is called by all: under "
    "FSDP and ZeRO the weights are collected from all; its keys have no `module.` in front.",
    example_before='torch.save(model.state_dict(), "model.pt")',
    example_after='accelerator.save(accelerator.get_state_dict(model), "model.pt")',
    find=find,
)
