"""AM101: the Accelerator is imported and made, where the script chose its device or right before it is first needed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.placement.starts import Start
from accel_migrate.edits import change
from accel_migrate.emit import accelerator_name, accelerator_statement, imported_names
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.sequence import comes_first
from accel_migrate.plan import Change, Edit, Insert, Remove, Replace, Safety, Substitute
from accel_migrate.rule import Context, Rule

CODE = "AM101"


def find(context: Context) -> Iterator[Change]:
    yield from _texts(context)
    training, module = context.training, context.module
    start = training.start
    if start.module is not module or not training.makes_accelerator:
        return
    names = ", ".join(imported_names(context))
    edits: list[Edit] = [_import(module, start, f"from {context.settings.target} import {names}")]
    made = (accelerator_statement(context), *training.rebound)
    device = training.device
    takes_place = device is not None and device.statement is start.statement
    kept = f"{device.variable.name} = {accelerator_name(context)}.device" if device is not None else ""
    if takes_place:
        new = (*made, kept) if training.needs_device else made
        edits.append(Substitute(start.statement, new))
        message = "the Accelerator chooses the device"
    elif start.stays:
        edits.append(Insert(start.statement, (*made, kept) if training.needs_device else made, "before"))
        message = "the Accelerator takes the device that is chosen above"
    elif device is not None and device.module is module and _is_above(module, device.statement, start):
        new = (*made, kept) if training.needs_device else made
        edits += [Remove(device.statement), Insert(start.statement, new, "before")]
        message = "the Accelerator chooses the device"
    else:
        if not start.at_prepare:
            edits.append(Insert(start.statement, made, "before", above_comments=not start.joins))
        message = "the Accelerator is made"
        if device is not None and device.module is module:
            edits.append(Substitute(device.statement, (kept,)) if training.needs_device else Remove(device.statement))
    if device is not None and not start.stays:
        edits += [Remove(statement) for statement in device.later]
    yield change(CODE, start.statement, message, edits, loop=training.index)
    if start.device is not None:
        yield change(CODE, start.statement, _meaning(context, start.device), loop=training.index, safety=Safety.NOTE)
    if start.tied is not None:
        told = (
            f"the script moves nothing to a GPU and {start.tied}, so cpu=True keeps the model there; to use a GPU take it out, "
            "and put what the script makes itself on accelerator.device"
        )
        yield change(CODE, start.statement, told, loop=training.index, safety=Safety.NOTE)
    if start.moves:
        told = (
            "the script moves nothing, so it trained on the CPU; the Accelerator takes a GPU where there is one: to stay on the "
            "CPU, make it with cpu=True"
        )
        yield change(CODE, start.statement, told, loop=training.index, safety=Safety.NOTE)


def _meaning(context: Context, chosen: str) -> str:
    """What the script's own choice means from now on."""
    if context.settings.target == "accelerate":
        return (
            f"`{chosen}` still asks for the CPU, but Accelerate takes no other device by its name: set CUDA_VISIBLE_DEVICES to "
            "train on another GPU than the first"
        )
    return (
        f"on one process `{chosen}` is the device, as before; on N processes each has a GPU of its own, and a number in it "
        "does not count"
    )


def _is_above(module: Module, statement: ast.stmt, start: Start) -> bool:
    """Whether a statement comes before the Accelerator, which `prepare` does not bring along."""
    return not start.at_prepare and comes_first(module, statement, start.statement)


def _texts(context: Context) -> Iterator[Change]:
    """`device == "cuda"` asks for the type of the device, once that is no longer a text."""
    training, source = context.training, context.module.source
    for module, node in training.device_texts:
        handed = training.reach.parameters.get(module.scope(node).function)  # type: ignore[arg-type]
        if module is context.module and (handed is None or handed.device != source.code(node)):
            edit = Replace(source.end(node), source.end(node), ".type")
            yield change(CODE, node, "the device is asked for by its type", [edit], loop=training.index)


def _import(module: Module, start: Start, line: str) -> Edit:
    """Among the imports of torch and other packages: where the file's sorting puts it, else after the last of them."""
    body = module.tree.body
    limits = [s for s in body if isinstance(s, ast.FunctionDef | ast.ClassDef)]
    every = [s for s in body if isinstance(s, ast.Import | ast.ImportFrom)]
    if module.scope(start.statement).function is None:
        limits.append(start.statement)  # type: ignore[arg-type]
        every = [
            s for s in every if comes_first(module, s, start.statement)
        ]  # where it is made, the name must be bound
    imports = [s for s in every if all(module.is_written_before(s, limit) for limit in limits)] or every[:1]
    outside = [s for s in imports if not _is_future(s)]
    packages = [s for s in outside if _root(s) in ("torch", "torchvision", "transformers", "tqdm", "timm", "numpy")]
    if not imports:
        return Insert(_first_statement(module), (line,), "before", blank_after=True)
    anchor = (packages or outside or imports)[-1]
    if not packages:
        return Insert(anchor, (line,), "after", blank_before=_is_future(anchor))
    group = _group(outside, anchor)
    smaller = [s for s in group if _sorted_before(s) < (True, line.split()[1])]
    if not _is_sorted(group) or not smaller:
        return Insert(anchor, (line,), "after")
    return Insert(smaller[-1], (line,), "after")


def _group(imports: list[ast.Import | ast.ImportFrom], anchor: ast.stmt) -> list[ast.Import | ast.ImportFrom]:
    """The imports around one that no blank line or comment parts from it."""
    found: list[ast.Import | ast.ImportFrom] = []
    for statement in imports:
        apart = bool(found) and statement.lineno != (found[-1].end_lineno or 0) + 1
        if apart and anchor in found:
            break
        found = [statement] if apart else [*found, statement]
    return found


def _is_sorted(group: list[ast.Import | ast.ImportFrom]) -> bool:
    """As isort and ruff sort: plain imports, then `from` imports, each by name."""
    names = [_sorted_before(statement) for statement in group]
    return len(group) > 1 and names == sorted(names)


def _sorted_before(statement: ast.Import | ast.ImportFrom) -> tuple[bool, str]:
    if isinstance(statement, ast.ImportFrom):
        return True, (statement.module or "").lower()
    return False, statement.names[0].name.lower()


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _root(statement: ast.Import | ast.ImportFrom) -> str:
    if isinstance(statement, ast.ImportFrom):
        return (statement.module or "").split(".")[0] if not statement.level else "."
    return statement.names[0].name.split(".")[0]


def _first_statement(module: Module) -> ast.stmt:
    body = module.tree.body
    docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1
    return body[1] if docstring else body[0]


RULE = Rule(
    code=CODE,
    name="accelerator_made",
    summary="import and make the Accelerator where the script chose its device",
    why="The Accelerator knows how the script was launched and gives each process its own device; one that is chosen "
    "by hand puts every process on the same. A request for the CPU (`--no-cuda`) is kept as `cpu=`, also that of a script that "
    "knows of Apple's GPU (mps) and the CPU alone, and a device that the user picks (`--device cuda:1`) as `device=`; None, "
    "which moves nothing, is the CPU. A script that knows of no device and makes tensors of its own stays on the CPU.",
    example_before='device = torch.device("cuda" if torch.cuda.is_available() else "cpu")',
    example_after="accelerator = Accelerator()",
    find=find,
)
