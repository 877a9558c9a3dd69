"""AM810: weights that are copied before `prepare`, where every process has drawn its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.roles import Role
from accel_migrate.analysis.seeding import Seeded, Seeding
from accel_migrate.edits import change
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM810"
_COPIES = {"copy.deepcopy", "copy.copy"}
_WEIGHTS = {"parameters", "named_parameters", "state_dict", "buffers", "named_buffers", "children", "modules"}
_MESSAGE = (
    "each process copies weights that it has drawn itself, because torch is not seeded alike on all, and prepare() then "
    "replaces those of the model by the main process's: the copy is another one on the others; call torch.manual_seed with one "
    "number before the model is built, or copy after prepare()"
)


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    if training.distribution.joins:
        return  # the original ran on several processes already
    seeding = Seeding(context.script, training)
    if seeding.of("torch").seeded is not Seeded.APART:
        return
    for call in module.calls:
        if not training.timing.after_prepare(module, call) and _copies(context, call):
            yield change(CODE, call, _MESSAGE, loop=training.index, safety=Safety.NOTE)
            return


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
    name="weights_drawn",
    summary="weights that are copied before every process has the same",
    why="`prepare` gives all processes the weights of the main one. A teacher, a target network or an average that was copied "
    "from the model before that has, on the other processes, the weights that these drew for themselves.",
    example_before="teacher = copy.deepcopy(model)",
    example_after="teacher = copy.deepcopy(model)",
    find=find,
    safety=Safety.NOTE,
)
