"""Whether a figure of this process's shard leaves the program: is printed, logged, drawn or written."""

from __future__ import annotations

import ast
import re

from accel_migrate.analysis.moves.batches import Batches
from accel_migrate.analysis.processes.local import Locality
from accel_migrate.analysis.program.libraries import is_library
from accel_migrate.analysis.program.scopes import Module
from accel_migrate.analysis.storage.files import writes
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.contents import contents
from accel_migrate.analysis.values.roles import Role

# Libraries that compute: what is given to them stays in the program, unless the call writes a file.
_COMPUTES = {
    "torch", "torchvision", "torchmetrics", "torch_geometric", "dgl", "numpy", "scipy", "sklearn", "random", "heapq", "bisect",
    "copy", "gc", "itertools", "functools", "collections", "operator", "queue", "time", "math", "einops", "transformers",
    "evaluate", "threading", "multiprocessing", "statistics", "pandas", "accelerate", "accel_runtime", "cupy",
}  # fmt: skip
_CONTAINERS = (ast.List, ast.Dict, ast.Set, ast.Tuple, ast.ListComp, ast.DictComp, ast.SetComp)
_OBJECTS = Role.MODEL | Role.OPTIMIZER | Role.SCHEDULER | Role.SCALER | Role.CRITERION | Role.BATCH | Role.OUTPUT
# Methods of an object that is not known, by which it shows what it is given.
_SHOWING = re.compile(
    r"(add_[a-z]|log|write|plot|print|report|record|dump|save|info|debug|warn|set_description|set_postfix|show)"
)


def shows_figures(script: Script, training: Training) -> bool:
    """Whether something of this process's own goes to a terminal, a log, a picture or a file."""
    local = _with_batches_asked_for(script, training)
    return any(
        training.timing.after_prepare(module, call)
        and (
            (_leaves(script, module, call) and any(local.is_local(module, part) for part in _given(module, call)))
            or _displays(script, local, module, call)
        )
        for module in script.project.modules
        for call in module.calls
    )


def _with_batches_asked_for(script: Script, training: Training) -> Locality:
    """What is this process's own, with the batches of sharded loaders that `next` gives."""
    batches, local = Batches(script.roles, script.graph), training.local
    asked = [
        call
        for module in training.modules
        for call in module.calls
        if isinstance(call.func, ast.Name) and call.func.id == "next" and training.timing.after_prepare(module, call)
        if any(training.holds(loader) for loader in batches.loaders(module, call) or ())
    ]
    if not asked:
        return local
    return Locality(local.roles, local.graph, local.loops.values(), training.backwards, local.whole, asked)


def _displays(script: Script, local: Locality, module: Module, call: ast.Call) -> bool:
    """`progress.display(i)` of an object that was made of others, where those were given figures and it shows them."""
    target = script.roles.target(module, call) if isinstance(call.func, ast.Attribute) else None
    if target is None or isinstance(target.node, ast.ClassDef):
        return False
    inner = [node for node in target.module.walk(target.node, ast.Call) if isinstance(node, ast.Call)]
    if not any(_leaves(script, target.module, each) for each in inner):
        return False
    assert isinstance(call.func, ast.Attribute)
    return any(
        isinstance(name, ast.Name) and bool(local.given_to(owner, name))
        for owner, made in contents(script.graph, module, call.func.value)
        if isinstance(made, ast.Call)
        for argument in (*made.args, *[keyword.value for keyword in made.keywords])
        for name in owner.walk(argument, ast.Name)
    )


def _given(module: Module, call: ast.Call) -> list[ast.expr]:
    """What a call is given, with the object itself where that is written: `table.to_csv(path)`."""
    given = [*call.args, *[keyword.value for keyword in call.keywords]]
    return [*given, call.func.value] if isinstance(call.func, ast.Attribute) and writes(module, call) else given


def _leaves(script: Script, module: Module, call: ast.Call) -> bool:
    """Whether what a call is given goes to the outside, and not to the script or a library that computes with it."""
    if script.roles.target(module, call) is not None:
        return False
    dotted = module.qualified(call.func)
    if writes(module, call) or dotted in ("torch.save", "pickle.dump", "json.dump"):
        return True
    if dotted is not None:
        shows = not _computes(dotted) if is_library(dotted) else bool(_SHOWING.match(dotted.rpartition(".")[2]))
        return isinstance(module.parents[call], ast.Expr) and shows
    if isinstance(call.func, ast.Name) and module.resolve(call.func.id, module.scope(call)) is None:
        return call.func.id in ("print", "display")
    if _is_kept(script, module, call.func):
        return isinstance(module.parents[call], ast.Expr)  # what it does is not known, and nobody wants its result
    return isinstance(call.func, ast.Attribute) and _shows(script, module, call.func)


def _is_kept(script: Script, module: Module, called: ast.expr) -> bool:
    """Whether what is called is a value that the script keeps: in a variable, in a field or in a mapping."""
    if script.roles.role(module, called) & _OBJECTS:
        return False
    if not isinstance(called, ast.Attribute):
        return isinstance(called, ast.Name | ast.Subscript)
    fields = (variable.name for each in script.project.modules for variable in each.attribute_bindings)
    return f"self.{called.attr}" in fields


def _shows(script: Script, module: Module, method: ast.Attribute) -> bool:
    """Whether an object shows what its method is given: one of a library that does not compute, or by the method's name."""
    if script.roles.role(module, method.value) & _OBJECTS:
        return False
    made = [shows for owner, part in contents(script.graph, module, method.value) for shows in _made(owner, part)]
    return any(made) if made else bool(_SHOWING.match(method.attr))


def _made(module: Module, part: ast.expr) -> list[bool]:
    """Whether an object comes from what shows things, a file say, or is one that keeps them; empty where it is not known."""
    if isinstance(part, _CONTAINERS):
        return [False]
    if not isinstance(part, ast.Call):
        return []
    dotted = module.qualified(part.func)
    if dotted is not None:
        return [not _computes(dotted)] if is_library(dotted) else []
    name = part.func.id if isinstance(part.func, ast.Name) else ""
    return [name == "open"] if name in ("open", "list", "dict", "set") else []


def _computes(dotted: str) -> bool:
    return dotted.partition(".")[0] in _COMPUTES and not dotted.startswith("torch.utils.tensorboard")
