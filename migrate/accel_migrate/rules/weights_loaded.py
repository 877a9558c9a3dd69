"""AM502: weights are read to the CPU, when every process has come so far, and go into the model itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.loading import Load
from accel_migrate.analysis.scopes import Module
from accel_migrate.edits import add_argument, change, quoted, replace_node
from accel_migrate.plan import Change, Edit, Insert
from accel_migrate.rule import Context, Rule

CODE = "AM502"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    for loaded in training.storage.loaded:
        if loaded.module is module:
            spelled = training.accelerator(module, loaded.call)
            owner = f"{spelled}.unwrap_model({module.source.code(loaded.owner)})"
            edit = replace_node(module.source, loaded.owner, owner)
            yield change(CODE, loaded.call, "the model itself takes the weights", [edit], loop=training.index)
    for load in training.storage.loads:
        if load.module is module:
            yield from _read(context, load)


def _read(context: Context, load: Load) -> Iterator[Change]:
    training, module = context.training, context.module
    spelled = training.accelerator(module, load.call)
    edits: list[Edit] = []
    said = []
    if load.lands_on_cpu:
        edits.append(_located(module, load))
        said.append("every process reads to the CPU, whatever card saved")
    if spelled is not None and training.storage.waits(load):
        statement = _opened(module, module.statement(load.call))
        edits.append(Insert(statement, (f"{spelled}.wait_for_everyone()",), "before", above_comments=False))
        said.append("waits until the file is written")
    if edits:
        yield change(CODE, load.call, "; ".join(said), edits, loop=training.index)


def _located(module: Module, load: Load) -> Edit:
    source = module.source
    cpu = quoted(source, "cpu")
    if load.location is not None:
        return replace_node(source, load.location, cpu)
    return add_argument(source, load.call, f"map_location={cpu}")


def _opened(module: Module, statement: ast.stmt) -> ast.stmt:
    """The outermost `with` around a statement: the file must not be opened before it is there."""
    for parent in module.ancestors(statement):
        if not isinstance(parent, ast.With):
            break
        statement = parent
    return statement


RULE = Rule(
    code=CODE,
    name="weights_loaded",
    summary="read weights to the CPU and put them into the bare model",
    why="A file names the card that saved it, so N processes would all load onto that card. A prepared model's wrapper wants "
    "keys that the file does not have. And a file that this run writes is written by one process while others are on their "
    "way to read it.",
    example_before='model.load_state_dict(torch.load("best.pt", map_location=device))',
    example_after="accelerator.wait_for_everyone()\n"
    'accelerator.unwrap_model(model).load_state_dict(torch.load("best.pt", map_location="cpu"))',
    find=find,
)
