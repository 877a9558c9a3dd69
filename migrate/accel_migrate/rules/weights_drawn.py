"""AM810: weights that are copied before `prepare`, where every process has drawn its own."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from accel_migrate.analysis.notes.seeding import Seeding
from accel_migrate.analysis.values.loss_path import LossPath
from accel_migrate.analysis.values.made_of import has_weights, made_of
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role
from accel_migrate.edits import note
from accel_migrate.flow.nodes import called_name
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM810"
_COPIES = {"copy.deepcopy", "copy.copy"}
_WEIGHTS = {"parameters", "named_parameters", "state_dict", "buffers", "named_buffers", "children", "modules"}
_MESSAGE = (
    "each process copies weights that it has drawn itself, because torch is not seeded alike on all{unless}, and prepare() then "
    "replaces those of the model by the main process's: the copy is another one on the others; call torch.manual_seed with one "
    "number before the model is built, or copy after prepare()"
)


_UNPREPARED = (
    "`{name}` has weights that each process draws itself, because torch is not seeded alike on all{unless}, and no prepare() "
    "gives it the main process's, while the loss is computed through it; call torch.manual_seed with one number before it is "
    "built"
)
_LAYERS = (
    "torch.nn.Linear",
    "torch.nn.Conv",
    "torch.nn.Embedding",
    "torch.nn.LSTM",
    "torch.nn.GRU",
    "torch.nn.Parameter",
)
_PRETRAINED = ("torchvision.", "timm.", "transformers.", "lpips.")
_READS = {"load_state_dict", "load", "from_pretrained", "load_weights", "load_checkpoint", "load_url", "load_model"}
_LOOKS = {"len", "range", "enumerate", "zip", "reversed", "print"}
_ASKED = {"pretrained", "weights", "checkpoint", "ckpt"}


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    joins = training.distribution.joins  # the original ran on several processes already
    if joins and not training.distribution.wrapped:
        return
    seed = Seeding(context.script, training, context.settings.target).of("torch")
    if not seed.may_differ:
        return
    unless = seed.unless(module)
    if joins:
        for model, name in _run_unprepared(context, training.distribution.wrapped):
            yield note(context, CODE, model, _UNPREPARED.format(name=name, unless=unless))
        return
    for call in module.calls:
        if not training.timing.after_prepare(module, call) and _copies(context, call):
            yield note(context, CODE, call, _MESSAGE.format(unless=unless))
            return
    for model, name in (*_run_unprepared(context), *_criteria(context), *_unregistered(context)):
        yield note(context, CODE, model, _UNPREPARED.format(name=name, unless=unless))


def _run_unprepared(context: Context, among: frozenset[Variable] | None = None) -> Iterator[tuple[ast.expr, str]]:
    """Models of this file that the loss is computed through, that nothing prepares, and whose weights nothing sets."""
    wrappings = {wrapping.call for wrapping in context.training.distribution.wrappings}
    training, graph = context.training, context.script.graph
    models = [built.variable for built in training.prepared if built.role == Role.MODEL]
    parts = {part.node for model in models for part in made_of(graph, model)}
    for variable in LossPath(graph, training.backwards).models:
        links = chain(graph, variable)
        if variable.scope.node in parts or any(training.holds(link) for link in links):
            continue  # prepared by itself, or with the model that it is a part of
        if among is not None and among.isdisjoint(links):
            continue
        values = [(v.scope.module, b.value) for v in links for b in v.scope.module.bindings(v) if b.value is not None]
        if not values or values[0][0] is not context.module or not _draws(context, variable, values):
            continue
        if not any(_sets_weights(module, links, wrappings) for module in context.script.project.modules):
            yield values[0][1], variable.name


def _criteria(context: Context) -> Iterator[tuple[ast.expr, str]]:
    """Criteria of this file that are called, that nothing prepares, and that draw weights: `CenterLoss(10, 2)`."""
    module, training, roles = context.module, context.training, context.script.roles
    called = {module.variable(call.func) for call in module.calls}
    for variable in called:
        if variable is None or training.holds(variable) or not roles.of(variable) & Role.CRITERION:
            continue
        links = chain(context.script.graph, variable)
        values = [(v.scope.module, b.value) for v in links for b in v.scope.module.bindings(v) if b.value is not None]
        drawn = [call for part in made_of(context.script.graph, variable) for call in _random(part.module, part.node)]
        if values and values[0][0] is module and drawn and not _sets_weights(module, links):
            yield values[0][1], variable.name


def _random(module: Module, node: ast.AST) -> list[ast.AST]:
    """Calls that make a parameter of random numbers."""
    return [
        call
        for call in module.walk(node, ast.Call)
        if (module.qualified(call.func) or "").endswith("nn.Parameter")
        and any("rand" in (module.qualified(part.func) or "") for part in module.walk(call, ast.Call))
    ]


def _unregistered(context: Context) -> Iterator[tuple[ast.expr, str]]:
    """Layers that a prepared model keeps in a plain list: they are no part of it for whoever asks for its parameters."""
    roles, graph = context.script.roles, context.script.graph
    models = [built.variable for built in context.training.prepared if built.role == Role.MODEL]
    owners = [part for model in models for part in made_of(graph, model)]
    for owner in {owner.node: owner for owner in owners if owner.module is context.module}.values():
        for variable, bindings in owner.module.attribute_bindings.items():
            kept = [b.value for b in bindings if isinstance(b.value, ast.List | ast.ListComp) and not b.path]
            if variable.scope.node is not owner.node or not kept or _is_registered(owner.module, variable):
                continue
            if any(has_weights(roles, owner.module, value) for value in kept):
                yield kept[0], variable.name


def _is_registered(module: Module, layers: Variable) -> bool:
    """`nn.Sequential(*self.layers)`, `self.add_module(name, self.layers[0])`: handed to somebody who may register them."""
    for call in module.walk(layers.scope.node, ast.Call):
        if getattr(call.func, "attr", "") in ("add_module", "register_module", "ModuleList", "ModuleDict"):
            return True  # one by one, under a name of the loop
        named = (part for argument in call.args for part in module.walk(argument, ast.Attribute))
        name = called_name(call)
        if name not in _LOOKS and any(module.variable(part) == layers for part in named):
            return True
    return False


def _draws(context: Context, model: Variable, values: list[tuple[Module, ast.expr]]) -> bool:
    """Whether building a model draws weights, in layers that are visible, and reads none."""
    parts = made_of(context.script.graph, model)
    built: list[tuple[Module, ast.AST]] = [*values, *[(part.module, part.node) for part in parts]]
    calls = [(owner, call) for owner, node in built for call in owner.walk(node, ast.Call)]
    if any(_reads_weights(owner, call) for owner, call in calls):
        return False
    return any((owner.qualified(call.func) or "").startswith(_LAYERS) for owner, call in calls)


def _reads_weights(module: Module, call: ast.Call) -> bool:
    name = called_name(call)
    told = {keyword.arg for keyword in call.keywords}
    return name in _READS or (module.qualified(call.func) or "").startswith(_PRETRAINED) or bool(told & _ASKED)


def _sets_weights(module: Module, links: list[Variable], wrappings: Collection[ast.Call] = ()) -> bool:
    """`teacher.load_state_dict(...)`, a function that is handed it, or a loop that copies into its parameters."""
    for call in module.calls:
        if any(module.variable(argument) in links for argument in call.args):
            if call in wrappings:
                continue  # which goes, and with it the weights that it sent
            return True
        if not isinstance(call.func, ast.Attribute) or module.variable(call.func.value) not in links:
            continue
        around = [parent for parent in module.ancestors(call) if isinstance(parent, ast.For)]
        if call.func.attr in ("load_state_dict", "apply") or any("data" in ast.unparse(loop) for loop in around[:1]):
            return True
    return False


def _copies(context: Context, call: ast.Call) -> bool:
    """`copy.deepcopy(model)`, `other.load_state_dict(model.state_dict())`, and `p.copy_(q)` in a loop over both."""
    module = context.module
    if module.qualified(call.func) in _COPIES:
        return any(_is_trained(context, part) for argument in call.args for part in module.walk(argument))
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("load_state_dict", "copy_"):
        return False
    if call.func.attr == "load_state_dict" and not _is_trained(context, call.func.value):
        return any(_is_weights(context, part) for argument in call.args for part in module.walk(argument))
    loops = [parent for parent in module.ancestors(call) if isinstance(parent, ast.For)]
    sources = [part for loop in loops for part in module.walk(loop.iter)]
    weights = [part for part in sources if isinstance(part, ast.Attribute) and part.attr in _WEIGHTS]
    owners = {ast.unparse(part.value) for part in weights}
    return len(owners) > 1 and any(_is_trained(context, part.value) for part in weights)


def _is_weights(context: Context, node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in _WEIGHTS and _is_trained(context, node.value)


def _is_trained(context: Context, node: ast.AST) -> bool:
    """Whether a node is a model that is prepared, and so gets the main process's weights."""
    variable = context.module.variable(node) if isinstance(node, ast.Name | ast.Attribute) else None
    return context.training.holds(variable) and bool(context.script.roles.of(variable) & Role.MODEL)


RULE = Rule(
    code=CODE,
    summary="weights that are copied before every process has the same",
    why="`prepare` gives all processes the weights of the main one. A teacher, a target network or an average that was copied "
    "from the model before that has, on the other processes, the weights that these drew for themselves. So has a fixed network "
    "with random weights, which nothing prepares. Our runtime seeds all processes alike: they draw the same weights unless the "
    "script seeds each by a number of its own. Accelerate does not.",
    example_before="teacher = copy.deepcopy(model)",
    find=find,
    safety=Safety.NOTE,
)
