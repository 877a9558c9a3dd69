"""AM103: functions that need the Accelerator are handed it, in place of `device` where they had that."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.placement.reach import NAME, NewParameter
from accel_migrate.analysis.values.roles import Role, arguments_of, positional_of
from accel_migrate.edits import behind, change, opening_bracket, replace_node
from accel_migrate.flow.nodes import walk
from accel_migrate.flow.program import Definition
from accel_migrate.flow.scopes import Function, Module, Variable
from accel_migrate.plan import Change, Edit, Insert, Replace
from accel_migrate.rule import Context, Rule

CODE = "AM103"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    for function, parameter in training.reach.parameters.items():
        edits: list[Edit] = []
        unread = _unread_device(context, parameter)
        if parameter.module is module:
            edits += _definition(module, function, parameter, context)
            edits += [Replace(*_last(module, function), "")] if unread is not None else []
        for caller, call in context.script.graph.sites.get(function, ()):
            if caller is module:
                edits += _call(context, caller, call, function, parameter, unread)
        if edits:
            what = (
                f"takes the Accelerator in place of `{parameter.replaced}`"
                if parameter.replaced
                else "takes the Accelerator"
            )
            node: ast.AST = function if parameter.module is module else _first_call(context, module, function)
            yield change(context, CODE, node, f"{function.name}() {what}", edits)


def _first_call(context: Context, module: Module, function: Function) -> ast.AST:
    return next(call for caller, call in context.script.graph.sites[function] if caller is module)


def _definition(module: Module, function: Function, parameter: NewParameter, context: Context) -> list[Edit]:
    source = module.source
    if parameter.replaced is None:
        return [_added(module, function, _parameter(context, module, _own_arguments(function)))]
    argument = next(a for a in _arguments(function) if a.arg == parameter.replaced)
    default = _default(function, argument)
    written = _parameter(context, module, [argument])
    edits: list[Edit] = [Replace(source.start(argument), source.end(default or argument), written)]
    if parameter.device is None:
        return edits
    taken_over = context.training.reach.taken_over(context.script.graph)
    gone = {*context.training.gone, *(part for argument in taken_over for part in walk(argument))}
    reads = [
        node
        for statement in function.body
        for node in walk(statement)
        if isinstance(node, ast.Name) and node.id == parameter.device and node not in gone
    ]
    texts = [node for node in reads if (module, node) in context.training.device_texts]
    if not texts and len({node.lineno for node in reads}) > 1 and function.body[0].lineno > function.lineno:
        return [*edits, _named_again(function, parameter.device)]
    return [*edits, *[replace_node(source, n, f"{NAME}.device{'.type' if n in texts else ''}") for n in reads]]


def _unread_device(context: Context, parameter: NewParameter) -> ast.arg | None:
    """A device behind other parameters with defaults, whose place the Accelerator cannot take, and that nobody reads now."""
    module, function, graph = parameter.module, parameter.function, context.script.graph
    sites = graph.all_sites.get(function, [])
    if parameter.replaced is not None or len(function.args.defaults) < 2 or len(sites) != len(graph.sites[function]):
        return None
    argument = function.args.args[-1]
    variable = Variable(module.functions[function], argument.arg)
    reads = [node for node in module.walk(module.tree, ast.Name) if module.variable(node) == variable]
    if context.script.roles.of(variable) != Role.DEVICE or any(node not in context.training.gone for node in reads):
        return None
    plain = all(isinstance(value, ast.Constant | ast.Name) for _, value in graph.handed(variable))
    written = [module.source.text[slice(*_last(module, function))], *[owner.source.code(call) for owner, call in sites]]
    return argument if plain and not any("#" in text for text in written) else None  # a comment may speak of another


def _last(module: Module, function: Function) -> tuple[int, int]:
    """Where the last parameter stands, with its default and the comma before it."""
    before, default = function.args.defaults[-2:]
    return module.source.end(before), module.source.end(default)


def _named_again(function: Function, device: str) -> Edit:
    """The device under the parameter's name, for a body that reads it in many lines."""
    described = len(function.body) > 1 and ast.get_docstring(function) is not None
    return Insert(function.body[1 if described else 0], (f"{device} = {NAME}.device",), "before")


def _default(function: Function, argument: ast.arg) -> ast.expr | None:
    positional = [*function.args.posonlyargs, *function.args.args]
    defaults = dict(zip(reversed(positional), reversed(function.args.defaults)))
    keywords = dict(zip(function.args.kwonlyargs, function.args.kw_defaults))
    return defaults.get(argument) or keywords.get(argument)


def _arguments(function: Function) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _own_arguments(function: Function) -> list[ast.arg]:
    return [argument for argument in _arguments(function) if argument.arg not in ("self", "cls")]


def _parameter(context: Context, module: Module, like: list[ast.arg]) -> str:
    """The new parameter, with a type where those like it have one and the file imports the class."""
    start = context.training.start
    imported = start.module is module and context.training.makes_accelerator
    typed = imported and like and all(argument.annotation is not None for argument in like)
    return f"{NAME}: Accelerator" if typed else NAME


def _added(module: Module, function: Function, written: str) -> Edit:
    """A new parameter behind the last one without a default."""
    source = module.source
    positional = [*function.args.posonlyargs, *function.args.args]
    plain = positional[: len(positional) - len(function.args.defaults)]
    if plain:
        return behind(source, plain[-1], written, _arguments(function))
    bracket = source.text.index("(", source.start(function) + len("def "))
    others = _arguments(function) or function.args.vararg or function.args.kwarg
    return Replace(bracket + 1, bracket + 1, f"{written}, " if others else written)


def _call(
    context: Context,
    caller: Module,
    call: ast.Call,
    function: Function,
    parameter: NewParameter,
    unread: ast.arg | None,
) -> list[Edit]:
    """The Accelerator is handed over, and a device that nobody reads is not."""
    source = caller.source
    passed = dict(arguments_of(call, _target(parameter))).get(unread.arg) if unread is not None else None
    handed = _handed(context, caller, call, function, parameter)
    if passed is None:
        return handed
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    number = next(i for i, each in enumerate(arguments) if passed in (each, getattr(each, "value", None)))
    gone, before = arguments[number], arguments[max(number - 1, 0)]
    (added,) = handed
    assert isinstance(added, Replace)
    if number == 0 or added.start in (source.end(before), source.end(gone)):
        return [Replace(source.start(gone), source.end(gone), added.text.strip(", \n"))]
    return [added, Replace(source.end(before), source.end(gone), "")]


def _handed(
    context: Context, caller: Module, call: ast.Call, function: Function, parameter: NewParameter
) -> list[Edit]:
    source = caller.source
    spelled = context.training.accelerator(caller, call) or NAME
    if parameter.replaced is not None:
        passed = dict(arguments_of(call, _target(parameter))).get(parameter.replaced)
        if passed is not None:
            for keyword in call.keywords:
                if keyword.value is passed:
                    return [Replace(source.start(keyword), source.end(keyword), f"{NAME}={spelled}")]
            return [replace_node(source, passed, spelled)]
    index = len(positional_of(_target(parameter))) - len(function.args.defaults)
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    if len(call.args) >= index and index > 0:
        return [behind(source, call.args[index - 1], spelled, arguments)]
    bracket = opening_bracket(source, call)
    if not arguments:
        return [Replace(bracket + 1, bracket + 1, spelled if index <= 0 else f"{NAME}={spelled}")]
    if index <= 0 and call.args:
        return [Replace(bracket + 1, bracket + 1, f"{spelled}, ")]
    return [behind(source, max(arguments, key=source.end), f"{NAME}={spelled}", arguments)]


def _target(parameter: NewParameter) -> Definition:
    return Definition(parameter.module, parameter.function)


RULE = Rule(
    code=CODE,
    summary="hand the Accelerator to the functions that need it",
    why="A training function that was given the device is given the Accelerator instead, in its definition and in "
    "every call; the device is one of its attributes.",
    example_before="def train(model, device, loader, optimizer): ...",
    example_after="def train(model, accelerator, loader, optimizer): ...",
    find=find,
)
