"""Scripts that know of no device: what they make lies on the CPU, so the model must stay there too.

Batches of a prepared loader come to the model's device by themselves. Tensors that the script makes, arrays that it
reads, and models that it builds later do not; with any of these the Accelerator keeps to the CPU, as the script did.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from accel_migrate.analysis.moves.batches import casts_to_cpu
from accel_migrate.analysis.moves.cuda_bound import doubled
from accel_migrate.analysis.moves.devices import is_device
from accel_migrate.analysis.processes.timing import Timing
from accel_migrate.analysis.values.imported import brought_by
from accel_migrate.analysis.values.loops import Backward, CallGraph
from accel_migrate.analysis.values.loss_path import MadeOf
from accel_migrate.analysis.values.origins import Where, where
from accel_migrate.analysis.values.provenance import Built, NotMigrated, chain
from accel_migrate.analysis.values.roles import Role, Roles, is_transparent
from accel_migrate.analysis.values.unread import unread_batches
from accel_migrate.flow.idle import Unit, unit_of
from accel_migrate.flow.nodes import all_arguments, calls_method, unparse
from accel_migrate.flow.scopes import Function, Module, Variable

_MAKERS = {
    "torch." + name
    for name in (
        "Tensor", "FloatTensor", "LongTensor", "arange", "as_tensor", "bernoulli", "empty", "eye", "from_numpy", "full",
        "linspace", "multinomial", "normal", "ones", "rand", "randint", "randn", "randperm", "tensor", "zeros",
        "autograd.Variable",
    )
}  # fmt: skip
_ASKS = (
    "is_available",
    "device_count",
    "manual_seed",
    "manual_seed_all",
    "empty_cache",
)  # what torch.cuda moves nothing with
_GPU = re.compile(r"cuda|\bmps\b|\bxpu\b|\bxla\b|set_default_device|distributed")

# Libraries that take a tensor wherever it is, or look at it as a text or a number.
_AT_HOME = (
    "torch", "einops.", "kornia.", "dgl.", "copy.", "math.", "logging.", "tqdm", "time.", "os.", "json.", "pickle.", "warnings.",
    "functools.", "itertools.", "collections.", "contextlib.", "accelerate", "transformers.", "timm", "wandb", "apex", "loguru",
)  # fmt: skip
_TO_CPU = {"item", "tolist", "shape", "size", "dim", "ndim", "cpu", "numpy", "numel", "dtype", "device"}
_KEEPERS = {"torch.autograd.Variable", "torch.tensor", "torch.as_tensor"}  # a tensor stays where it is


def cpu_only(
    graph: CallGraph,
    backwards: Sequence[Backward],
    modules: tuple[Module, ...],
    timing: Timing,
    prepared: tuple[Built, ...],
    whole: Sequence[tuple[Module, ast.stmt]],
    reader: Module,
) -> str | None:
    """What ties a script without moves to the CPU, told in the file `reader`; None if nothing does, or a device is named.

    `whole` are the loops over loaders that are not prepared: their batches stay on the CPU.
    """
    if _names_device(graph.roles, modules):
        return None
    if not any(built.role == Role.LOADER for built in prepared):
        unread = unread_batches(graph, backwards)
        if unread is not None:
            return f"trains on `{unparse(unread)}`, which is not visible to the analysis and may be on the CPU"
        return "makes its batches by itself, on the CPU"
    tying: list[tuple[Module, ast.stmt | ast.expr]] = [*whole]
    for module in modules:
        tying += [
            (module, call) for call in (*_tied(graph.roles, module, timing), *_drawn_early(graph.roles, module, timing))
        ]
    for built in prepared:
        if built.role == Role.MODEL:
            module = built.variable.scope.module
            bindings = [b for b in module.bindings(built.variable) if b.kind == "assign"]
            bindings = [b for b in bindings if not _is_handed(module, b.value, built.variable)]
            made = [b.statement for b in bindings if not timing.place.prepares_later(built.variable, b.statement)]
            tying += [(module, statement) for statement in made if timing.after_prepare(module, statement)]
    if tying:
        first = min(tying, key=lambda each: (each[0] is not reader, each[0].position(each[1])))
        return f"needs the CPU in {reader.place_of(*first)}"
    for module, call in MadeOf(graph, backwards).made:
        if _makes(graph.roles, module, call):
            return f"computes with what is made on the CPU in {reader.place_of(module, call)}"
    wide = [(module, call) for module in modules for call in doubled(graph.roles, module)]
    if wide:
        return f"computes with numbers of 64 bits ({reader.place_of(*wide[0])}), which not every GPU has"
    imported = brought_by(graph.roles.project, modules)
    for module in graph.roles.project.modules:
        if module not in modules:
            run = [c for c in module.calls if module.scope(c).function in timing.late]
            run += [c for c in module.calls if module in imported and _is_run_by_model(module, c)]
            called = [c for c in run if _ties(graph.roles, module, c)]
            if called:
                return f"needs the CPU in {reader.place_of(module, called[0])}"
    return None


def names_gpu(roles: Roles, modules: Sequence[Module], idle: frozenset[Unit]) -> bool:
    """Whether what may run has a word about another device than the CPU, beyond its seed and whether it is there."""
    spoken = [module for module in modules if _GPU.search(module.source.text)]  # comments and docstrings as well
    return _names_device(roles, modules) or any(_GPU.search(word) for module in spoken for word in _words(module, idle))


def _words(module: Module, idle: frozenset[Unit]) -> Iterator[str]:
    """The names and texts of a file's code."""
    for node in module.walk(module.tree):
        above = module.parents.get(node)
        if (isinstance(above, ast.Attribute) and above.attr in _ASKS) or unit_of(node, module.ancestors(node)) in idle:
            continue
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.alias(name=word) | ast.arg(arg=word):
                yield word
            case ast.keyword(arg=str(word)) | ast.ImportFrom(module=str(word)):
                yield word
            case ast.Constant(value=str(word)) if not isinstance(above, ast.Expr):
                yield word


def _names_device(roles: Roles, modules: Sequence[Module]) -> bool:
    named = [(m, k.value) for m in modules for call in m.calls for k in call.keywords if k.arg == "device"]
    return any(_names_another(roles, module, device) for module, device in named)


def _names_another(roles: Roles, module: Module, device: ast.expr) -> bool:
    """Whether a device is another than the CPU; `x.device` of what is not known to hold a chosen one follows a tensor."""
    beyond = where(roles, module, device) & ~(Where.CPU | Where.IN_PLACE)
    followed = beyond == Where.UNKNOWN and isinstance(device, ast.Attribute) and device.attr == "device"
    return is_device(roles, module, device) if followed else bool(beyond)


def _is_handed(module: Module, value: ast.expr | None, variable: Variable) -> bool:
    """`model, best = train(model, ...)`: what is handed the model gives it back."""
    given = value.args if isinstance(value, ast.Call) else []
    return any(isinstance(each, ast.Name | ast.Attribute) and module.variable(each) == variable for each in given)


def check_built_here(graph: CallGraph, prepared: tuple[Built, ...]) -> None:
    """NotMigrated where a model comes from outside: it is on a device that nothing here tells, and may not be sent to the CPU."""
    for built in prepared:
        for link in chain(graph, built.variable) if built.role == Role.MODEL else ():
            handed = link.scope.module.is_parameter(link)
            function = link.scope.node
            if handed and isinstance(function, ast.FunctionDef) and not graph.sites.get(function):
                reason = f"`{link.name}` is handed to {function.name}() from outside the files given, on a device not visible"
                raise NotMigrated(reason, (link.scope.module, function))


def _tied(roles: Roles, module: Module, timing: Timing) -> list[ast.Call]:
    """Calls that make tensors or loaders, hand tensors to numpy, move batches to the CPU, or run the model on other things."""
    tying = [*_built_to_be_read(roles, module), *[call for call in module.calls if _ties(roles, module, call)]]
    return [call for call in tying if _runs_late(module, call, timing)]


def _drawn_early(roles: Roles, module: Module, timing: Timing) -> Iterator[ast.Call]:
    """`model(sample)` of a batch that `next()` drew before the loaders were prepared."""
    for call in module.calls:
        if not roles.role(module, call.func) & Role.MODEL or not _runs_late(module, call, timing):
            continue
        given = [module.variable(node) for argument in call.args for node in module.walk(argument, ast.Name)]
        for binding in (b for variable in given if variable is not None for b in module.bindings(variable)):
            drawn = isinstance(binding.value, ast.Call) and getattr(binding.value.func, "id", "") == "next"
            if drawn and not timing.after_prepare(module, binding.statement):
                yield call


def _built_to_be_read(roles: Roles, module: Module) -> list[ast.Call]:
    """`for x in DataLoader(data):`: a loader without a name, which nothing prepares."""
    loops = module.walk(module.tree, ast.For, ast.AsyncFor, ast.comprehension)
    built = [call for loop in loops for call in module.walk(loop.iter, ast.Call)]
    return [
        call
        for call in built
        if isinstance(call, ast.Call) and roles.role(module, call) & Role.LOADER and not is_transparent(module, call)
    ]


def _ties(roles: Roles, module: Module, call: ast.Call) -> bool:
    return (
        _makes(roles, module, call)
        or (calls_method(call, "numpy") and not call.args)
        or _moves_to_cpu(roles, module, call)
        or casts_to_cpu(module, call)
        or _is_for_others(roles, module, call)
        or _runs_on_other(roles, module, call)
    )


def _makes(roles: Roles, module: Module, call: ast.Call) -> bool:
    """Whether a call makes a tensor on the CPU; one that goes where another tensor is does not."""
    if module.qualified(call.func) not in _MAKERS:
        return False
    if module.qualified(call.func) in _KEEPERS and call.args and roles.role(module, call.args[0]) & Role.BATCH:
        return False
    moved = module.parents[module.parents[call]] if isinstance(module.parents[call], ast.Attribute) else None
    there = [k.value for k in call.keywords if k.arg == "device"]
    if calls_method(moved, "to"):
        there += moved.args[:1]
    return not any(where(roles, module, device) in Where.IN_PLACE for device in there)


def _moves_to_cpu(roles: Roles, module: Module, call: ast.Call) -> bool:
    """`x.to("cpu")` of a batch, or `noise.to("cpu")` in a model, which meets there what the model computes."""
    if not calls_method(call, "to") or len(call.args) != 1:
        return False
    concerned = roles.role(module, call.func.value) & Role.BATCH or _is_in_model(module, call)
    return bool(concerned) and where(roles, module, call.args[0]) == Where.CPU


def _is_run_by_model(module: Module, call: ast.Call) -> bool:
    """What a model does when it runs is not called by its name."""
    function = module.scope(call).function
    return _is_in_model(module, call) and function is not None and function.name != "__init__"


def _is_in_model(module: Module, call: ast.Call) -> bool:
    owner = module.scope(call).owner_class
    return owner is not None and any(getattr(each, "name", "") == "forward" for each in owner.node.body)  # type: ignore[attr-defined]


def _runs_on_other(roles: Roles, module: Module, call: ast.Call) -> bool:
    """`model(sample)`, where the sample is not known to come from a batch: it may be an item of the data, on the CPU."""
    if _is_in_model(module, call) or not roles.role(module, call.func) & Role.MODEL:
        return False
    return not any(_is_moved(roles, module, argument) for argument in call.args) and any(
        isinstance(node, ast.Name) for argument in call.args for node in module.walk(argument)
    )


def _is_moved(roles: Roles, module: Module, argument: ast.expr) -> bool:
    """Whether an argument is made of a batch, or of what a model made of one, or is one row after another of that."""
    nodes = module.walk(argument, ast.Name, ast.Attribute, ast.Call)
    rows = [v for node in nodes if (v := module.variable(node)) is not None]
    drawn = [b.value for v in rows for b in module.bindings(v) if b.kind in ("for", "comprehension") and b.value]
    return any(roles.role(module, node) & (Role.BATCH | Role.OUTPUT) for node in (*nodes, *drawn))


def _is_handed_on(module: Module, function: Function) -> bool:
    """`losses = [penalty]`: a function by its name, for whoever calls it; what a loader calls makes batches."""
    for node in module.walk(module.tree, ast.Name):
        above = module.parents[node]
        if node.id == function.name and isinstance(node.ctx, ast.Load):
            if not (isinstance(above, ast.Call) and above.func is node) and getattr(above, "arg", "") != "collate_fn":
                return True
    return False


def _is_for_others(roles: Roles, module: Module, call: ast.Call) -> bool:
    """`accuracy_score(y, scores)`, `np.asarray(scores)`: a library that knows of no device gets a tensor."""
    dotted = module.full_name(call.func)
    if not dotted or dotted.startswith(_AT_HOME) or roles.target(module, call) is not None:
        return False
    if isinstance(call.func, ast.Attribute) and roles.project.definition(module, call.func.value) is not None:
        return False  # `Reversed.apply(x)`, of a class of the project
    given = all_arguments(call)
    return any(_is_moved(roles, module, each) and not _is_number(module, each) for each in given)


def _is_number(module: Module, value: ast.expr) -> bool:
    """Whether an argument is made of numbers of a tensor, or of what is brought to the CPU by name."""
    asked = {node.attr for node in module.walk(value, ast.Attribute)}
    calls = {node.func.id for node in module.walk(value, ast.Call) if isinstance(getattr(node, "func", None), ast.Name)}  # type: ignore[attr-defined]
    return bool(asked & _TO_CPU or calls & {"len", "int", "float", "str"})


def _runs_late(module: Module, node: ast.AST, timing: Timing) -> bool:
    if timing.after_prepare(module, node) or timing.follows(module, node):
        return True
    if any(isinstance(above, ast.Lambda) for above in module.ancestors(node)):
        return True
    function = module.scope(node).function
    if function is not None and module.functions[function].parent.is_function:  # type: ignore[union-attr]
        return True  # whoever gets it may call it then
    if function is not None and _is_handed_on(module, function):
        return True
    # What a model does when it runs is not called by its name.
    return function is not None and function.name != "__init__" and module.scope(node).owner_class is not None
