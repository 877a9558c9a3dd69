"""AM102: one `prepare` takes models, optimizers, per-batch schedulers and loaders, and rebinds the same names."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.trainings.optimizers import bare_weights, exchanged_later
from accel_migrate.analysis.values.provenance import Built, chain
from accel_migrate.analysis.values.roles import Role
from accel_migrate.edits import change, note
from accel_migrate.emit import accelerator_statement
from accel_migrate.flow.nodes import unparse
from accel_migrate.plan import Change, Insert
from accel_migrate.rule import Context, Rule

CODE = "AM102"
_WIDEST = 120  # characters of a line


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    place = training.place
    yield from _handed(context)
    if place.module is not module:
        return
    spelled = training.accelerator(module, place.after)
    apart = {built for built, _ in (*place.apart, *place.shared, *place.handed)} | place.waiting
    together = [built for built in training.prepared if built not in apart]
    text = _call(context, together, f"{spelled}.prepare", place.after.col_offset)
    statements = (
        (accelerator_statement(context), *training.rebound, text)
        if training.start.at_prepare and training.makes_accelerator
        else (text,)
    )
    compound = isinstance(place.after, ast.If | ast.For | ast.While | ast.With | ast.Try | ast.FunctionDef)
    edit = Insert(place.after, statements, "after", blank_before=compound)
    yield change(
        context, CODE, place.after, f"prepares {_told(context, together)}", [*_declared(context, together), edit]
    )
    for built, statement in place.apart:
        alone = Insert(statement, (f"{built.text} = {spelled}.prepare({built.text})",), "after")
        message = f"prepares {built.text} where it is built: it exists only under a condition"
        yield change(context, CODE, statement, message, [alone])
    yield from _shared(context)
    for statement, objects in place.again():
        text = _call(context, objects, f"{training.accelerator(module, statement)}.prepare", statement.col_offset)
        message = f"prepares {_told(context, objects)}, for the training that follows here"
        yield change(context, CODE, statement, message, [Insert(statement, (text,), "after")])
    yield from _of_no_model(context)
    yield from _exchanged(context)


def _declared(context: Context, objects: list[Built]) -> list[Insert]:
    """`global loader` at the top of the function that prepares it, where the file builds it and nothing declares it."""
    module = context.module
    function = module.scope(context.training.place.after).function
    if function is None:
        return []
    known = module.functions[function].outer_names
    names = [b.text for b in objects if b.variable.scope is module.root and b.text == b.variable.name not in known]
    body = getattr(function, "body", [])
    first = body[1] if ast.get_docstring(function, clean=False) is not None and len(body) > 1 else body[0]
    return [Insert(first, (f"global {', '.join(names)}",), "before")] if names else []


def _of_no_model(context: Context) -> Iterator[Change]:
    training = context.training
    optimizers = [built.variable for built in training.prepared if built.role & Role.OPTIMIZER]
    found = [weight for optimizer in optimizers for weight in bare_weights(context.script.roles, optimizer)]
    for module, name in found[:1]:
        if module is context.module:
            names = ", ".join(dict.fromkeys(f"`{name.id}`" for _, name in found))
            message = (
                f"{names}: trained and of no model, so prepare() is not handed it: its gradients are averaged with those of "
                "the prepared optimizer, and --strategy fsdp refuses it; there, make it a parameter of a model"
            )
            yield note(context, CODE, name, message)


def _exchanged(context: Context) -> Iterator[Change]:
    training, script = context.training, context.script
    optimizers = [built.variable for built in training.prepared if built.role & Role.OPTIMIZER]
    links = [link for optimizer in optimizers for link in chain(script.graph, optimizer)]
    found = dict.fromkeys(each for link in links for each in exchanged_later(script.roles, link))
    for module, statement, layer in [*found][:1]:
        where = f"line {statement.lineno}"
        where = where if module is context.module else f"{script.project.file_name(module)}, {where}"
        message = (
            f"the optimizer is built before `{unparse(layer)}` is exchanged ({where}) and keeps the weights of the old layer: "
            "as in the original it does not step those of the new one unless they are added to it, and --strategy fsdp "
            "refuses it; build it after that"
        )
        yield note(context, CODE, training.place.after, message)


def _shared(context: Context) -> Iterator[Change]:
    """The loaders that all rounds of a loop go over, in one call before it."""
    training, module = context.training, context.module
    for loop in dict.fromkeys(loop for _, loop in training.place.shared):
        loaders = [built for built, around in training.place.shared if around is loop]
        text = _call(context, loaders, f"{training.accelerator(module, loop)}.prepare", loop.col_offset)
        message = f"prepares {_told(context, loaders)}, once for all rounds of the loop"
        yield change(context, CODE, loop, message, [Insert(loop, (text,), "before")])


def _handed(context: Context) -> Iterator[Change]:
    """The loaders of other functions, in one call where the function begins that is handed them, or behind what builds one."""
    training, module = context.training, context.module
    here = [each for each in training.place.handed if each[0].variable.scope.module is module]
    for step in dict.fromkeys(statement for _, statement in here):
        loaders = [built for built, statement in here if statement is step]
        builds = any(binding.statement is step for binding in module.bindings(loaders[0].variable))
        text = _call(context, loaders, f"{training.accelerator(module, step)}.prepare", step.col_offset)
        where = "where it is built" if builds else f"which {loaders[0].variable.scope.name}() is handed"
        message = f"prepares {_told(context, loaders)}, {where}"
        yield change(context, CODE, step, message, [Insert(step, (text,), "after" if builds else "before")])


def _call(context: Context, objects: list[Built], function: str, indent: int) -> str:
    names = [built.text for built in objects]
    placed = [] if _are_placed(context, objects) else [f"device_placement={_placed(context, objects)}"]
    joined, handed = ", ".join(names), ", ".join([*names, *placed])
    line = f"{joined} = {function}({handed})"
    if len(line) + indent <= _width(context):
        return line
    given = _listed(names) if len(f"{joined} = {function}(") + indent > _WIDEST else joined
    if len(handed) + indent + 4 <= _WIDEST:
        return f"{given} = {function}(\n    {handed}\n)"
    return f"{given} = {function}{_listed([*names, *placed])}"


def _listed(parts: list[str]) -> str:
    return "(\n" + "".join(f"    {part},\n" for part in parts) + ")"


def _told(context: Context, objects: list[Built]) -> str:
    stays = "; batches stay where the data set has them, unless the script moves them, or parts of them"
    return ", ".join(built.text for built in objects) + ("" if _are_placed(context, objects) else stays)


def _are_placed(context: Context, objects: list[Built]) -> bool:
    return all(_placed(context, objects))


def _placed(context: Context, objects: list[Built]) -> list[bool]:
    return [built.variable not in context.training.unplaced for built in objects]


def _width(context: Context) -> int:
    """As wide as the author writes, within reason."""
    longest = max((len(line) for line in context.module.source.text.splitlines()), default=0)
    return min(_WIDEST, max(88, longest))


RULE = Rule(
    code=CODE,
    summary="hand models, optimizers, per-batch schedulers and loaders to one `prepare` call",
    why="`prepare` shares the batches out among processes, averages gradients and places everything on the device. It "
    "comes after all that builds or changes the objects (weights loaded, layers frozen) and before the first loop. "
    "A scheduler that steps once per epoch, or with a metric, stays out: it counts epochs, not batches.",
    example_before="optimizer = SGD(model.parameters(), lr=0.1)",
    example_after="optimizer = SGD(model.parameters(), lr=0.1)\n"
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
    find=find,
)
