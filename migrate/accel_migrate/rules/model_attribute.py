"""AM105: parts and methods of a prepared model are asked of the model itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.attributes import owner_of
from accel_migrate.edits import change, replace_node
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM105"


def find(context: Context) -> Iterator[Change]:
    training, source = context.training, context.module.source
    for module, node in training.model_attributes:
        if module is not context.module or node in training.gone:
            continue
        spelled = training.ready(module, node)
        model = owner_of(node)
        owner = source.code(model)
        part = f"`{node.attr}`" if isinstance(node, ast.Attribute) else f"{ast.unparse(node.func)}()"
        if spelled is None:
            message = (
                f"`{owner}` is wrapped on several processes, and {part} then meets the wrapper; hand over "
                f"accelerator.unwrap_model({owner})"
            )
            yield change(CODE, node, message, loop=training.index, safety=Safety.NOTE)
        else:
            edit = replace_node(source, model, f"{spelled}.unwrap_model({owner})")
            message = (
                f"{part} belongs to the model itself"
                if isinstance(node, ast.Attribute)
                else f"{part} of the model itself"
            )
            yield change(CODE, node, message, [edit], loop=training.index)


RULE = Rule(
    code=CODE,
    name="model_attribute",
    summary="ask the model itself, not its wrapper, for its parts",
    why="On several processes `prepare` wraps the model, and the wrapper has none of the model's own parts and methods; on "
    "one process there is no wrapper, and `unwrap_model` gives the model back.",
    example_before="weight = model.fc.weight",
    example_after="weight = accelerator.unwrap_model(model).fc.weight",
    find=find,
)
