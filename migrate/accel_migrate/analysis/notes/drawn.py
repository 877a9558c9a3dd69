"""Random numbers that a training draws in each step: in its loop, in the layers of its models, and for each sample."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.notes.seeding import Seeding, library_of
from accel_migrate.analysis.program.project import Definition
from accel_migrate.analysis.program.scopes import Function, Module
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.constructions import constructions
from accel_migrate.analysis.values.made_of import made_of
from accel_migrate.analysis.values.numbers import data_of
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role, Roles

_DROPS = re.compile(r"torch\.nn\.(functional\.)?(\w*[dD]ropout\w*|rrelu|RReLU|gumbel_softmax)")
_AUGMENTS = re.compile(
    r"torchvision\.transforms\.(v2\.)?(Random\w*|ColorJitter|RandAugment|TrivialAugmentWide|AutoAugment|AugMix)"
)
_IN_PLACE = {"uniform_", "normal_", "random_", "bernoulli_", "exponential_", "log_normal_", "cauchy_", "geometric_"}
_EACH_SAMPLE = ("__getitem__", "__call__")


@dataclass(frozen=True, eq=False)
class Drawn:
    """A call that draws from the global generator of a library."""

    what: str  # for people
    library: str
    module: Module
    call: ast.Call


def find_drawn(script: Script, training: Training, module: Module, seeding: Seeding) -> Iterator[Drawn]:
    """What is drawn for the steps of a training, as far as one of its files is to tell it."""
    yield from _in_loops(script, training, module, seeding)
    if training.place.module is module:
        yield from _in_models(script, training)
        yield from _for_samples(script, training)


def _in_loops(script: Script, training: Training, module: Module, seeding: Seeding) -> Iterator[Drawn]:
    """What training steps draw outside of the models: in this file, or for its loops in files that are not changed."""
    calls = [(module, call) for call in module.calls if _is_in_training(training, module, call)]
    loops = [loop for loop in training.loops if loop.trains and loop.module is module]
    reached = {f for loop in loops for f in script.graph.reached_from(loop.statement, script.roles, module)}
    others = [each for each in seeding.files if each not in training.modules and training.place.module is module]
    for owner in (module, *others):
        outside = [f for f in reached & owner.functions.keys() if not _is_of_module(script.roles, owner, f)]
        calls += [(owner, call) for call in owner.calls if owner.scope(call).function in outside]
    for owner, call in calls:
        library = _library(owner, call)
        if library is not None and not _is_evaluated(training, owner, call):
            yield Drawn("in its steps", library, owner, call)


def _library(module: Module, call: ast.Call) -> str | None:
    """The library whose generator a call draws from; a tensor that is filled at random draws from torch's."""
    filled = (
        isinstance(call.func, ast.Attribute) and call.func.attr in _IN_PLACE and module.qualified(call.func) is None
    )
    return "torch" if filled or _samples(module, call) else library_of(module, call)


def _samples(module: Module, call: ast.Call) -> bool:
    """`Uniform(-1, 1).sample((4,))`, by a name or as it is made."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("sample", "rsample"):
        return False
    made = call.func.value
    variable = module.variable(made) if isinstance(made, ast.Name | ast.Attribute) else None
    values = [made] if variable is None else [binding.value for binding in module.bindings(variable)]
    return any(
        isinstance(value, ast.Call) and (module.qualified(value.func) or "").startswith("torch.distributions.")
        for value in values
    )


def _is_of_module(roles: Roles, module: Module, function: Function) -> bool:
    """Whether a function is a method of a torch module, or may be: of a class that is derived from an unknown one."""
    owner = module.functions[function].owner_class
    return owner is not None and bool(roles.project.base_names(Definition(module, owner.node)))  # type: ignore[arg-type]


def _is_evaluated(training: Training, module: Module, call: ast.Call) -> bool:
    """Whether a call stands in a loop, or its function, that evaluates only."""
    evaluating = {loop.function for loop in training.loops if not loop.trains} - {
        loop.function for loop in training.loops if loop.trains
    }
    function = module.scope(call).function
    return function is not None and function in evaluating


def _is_in_training(training: Training, module: Module, call: ast.Call) -> bool:
    around = set(module.ancestors(call))
    if any(loop.trains and loop.statement in around for loop in training.loops):
        return True
    repeated = any(isinstance(parent, ast.For | ast.While) for parent in around)
    return repeated and any(b.function is module.scope(call).function for b in training.backwards)


def _in_models(script: Script, training: Training) -> Iterator[Drawn]:
    """Layers that drop at random, and noise that a forward draws, of the models that are prepared."""
    roles, graph = script.roles, script.graph
    for built in training.prepared:
        if built.role is not Role.MODEL:
            continue
        links = chain(roles, graph, built.variable)
        values = [(v.scope.module, b.value) for v in links for b in v.scope.module.bindings(v) if b.value is not None]
        parts = [(part.module, part.node) for part in made_of(roles, graph, built.variable)]
        for owner, node in [*values, *parts]:
            for call in owner.walk(node, ast.Call):
                if isinstance(call, ast.Call) and _drops(owner, call):
                    yield Drawn("for dropout", "torch", owner, call)
                    break
        for owner, node in parts:
            if isinstance(node, ast.ClassDef):
                yield from _in_forward(script, owner, node)


def _in_forward(script: Script, module: Module, owner: ast.ClassDef) -> Iterator[Drawn]:
    """What `forward`, and what it calls, draws: `eps = torch.randn_like(std)`, in methods of its class and elsewhere."""
    methods = {each.name: each for each in owner.body if isinstance(each, ast.FunctionDef)}
    names = ["forward"] if "forward" in methods else []
    for name in names:
        for node in module.walk(methods[name], ast.Attribute, ast.Call):
            if isinstance(node, ast.Attribute) and node.attr in methods and node.attr not in names:
                names.append(node.attr)
            elif isinstance(node, ast.Call) and (library := _library(module, node)) is not None:
                yield Drawn("for noise in its model", library, module, node)
                return
    outside = [f for name in names for f in script.graph.reached_from(methods[name], script.roles, module)]
    for other in script.project.modules:
        for call in other.calls:
            if other.scope(call).function in outside and (library := _library(other, call)) is not None:
                yield Drawn("for noise in its model", library, other, call)
                return


def _drops(module: Module, call: ast.Call) -> bool:
    """Whether a layer drops a share of its values, which is not plainly none."""
    dotted = module.qualified(call.func) or ""
    if _DROPS.fullmatch(dotted):
        share = (
            [*call.args[:1], *[k.value for k in call.keywords if k.arg == "p"]] if "functional" not in dotted else []
        )
        return not any(isinstance(value, ast.Constant) and not value.value for value in share)
    return dotted.startswith("torch.nn.Transformer") and not any(
        k.arg == "dropout" and isinstance(k.value, ast.Constant) and not k.value.value for k in call.keywords
    )


def _for_samples(script: Script, training: Training) -> Iterator[Drawn]:
    """What the data of the loaders that are trained on draws for each sample; with workers, all follow torch's seed."""
    roles, graph = script.roles, script.graph
    trained = [loop.module.variable(loop.loader) for loop in training.loops if loop.trains and training.shares(loop)]
    for loader in dict.fromkeys(link for v in trained if v is not None for link in chain(roles, graph, v)):
        for module, made in constructions(roles, loader, Role.LOADER):
            workers = any(k.arg == "num_workers" and not _is_zero(k.value) for k in made.keywords)
            for owner, node in data_of(roles, graph, module, made):
                for call in owner.walk(node, ast.Call):
                    library = _augments(owner, call) if isinstance(call, ast.Call) else None
                    if library is not None and isinstance(call, ast.Call):
                        yield Drawn("for augmentation", "torch" if workers else library, owner, call)


def _augments(module: Module, call: ast.Call) -> str | None:
    if _AUGMENTS.fullmatch(module.qualified(call.func) or ""):
        return "torch"
    function = module.scope(call).function
    each = function is not None and function.name in _EACH_SAMPLE
    return library_of(module, call) if each else None


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0
