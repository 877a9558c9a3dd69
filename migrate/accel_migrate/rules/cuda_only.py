"""AM204: calls that need a CUDA GPU are pointed out; all else of the script runs on any device."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.moves.cuda_bound import goes_by_cuda
from accel_migrate.analysis.moves.devices import moves_in
from accel_migrate.analysis.notes.elsewhere import may_run
from accel_migrate.analysis.placement.overriding import named_gpus, naming_gpus
from accel_migrate.analysis.values.imported import loaded_with
from accel_migrate.edits import note
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.tensor_types import is_cpu_type
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM204"
_CALLS = {
    "torch.cuda.synchronize", "torch.cuda.Event", "torch.cuda.Stream", "torch.cuda.current_stream", "torch.cuda.stream",
    "torch.cuda.max_memory_allocated", "torch.cuda.memory_allocated", "torch.cuda.reset_peak_memory_stats",
    "torch.cuda.get_device_name", "torch.cuda.get_device_properties", "torch.cuda.mem_get_info",
}  # fmt: skip


def find(context: Context) -> Iterator[Change]:
    module = context.module
    yield from _named_gpus(context)
    yield from _moves_that_stay(context)
    yield from _device_that_stays(context)
    for node in module.walk(module.tree, ast.Call, ast.Attribute):
        if isinstance(node, ast.Attribute):
            if not node.attr.endswith("Tensor") or not (module.qualified(node) or "").startswith("torch.cuda."):
                continue
            what = f"{unparse(node)} makes tensors on a CUDA GPU"
        elif (dotted := module.qualified(node.func)) is None:
            continue
        elif dotted in _CALLS and not _is_guarded(module, node):
            what = f"{unparse(node.func)}() needs a CUDA GPU"
        elif dotted.endswith("set_default_tensor_type") and not _is_of_cpu(module, node):
            what = "a default tensor type makes loaders and their shuffling fail on the device"
        else:
            continue
        message = f'{what}; use accelerator.device, or guard it by accelerator.device.type == "cuda"'
        yield note(context, CODE, node, message)


def _is_of_cpu(module: Module, call: ast.Call) -> bool:
    """`torch.set_default_tensor_type(torch.DoubleTensor)`, which chooses a precision and no device."""
    named = [module.qualified(part) or getattr(part, "value", None) for part in call.args]
    return bool(named) and all(map(is_cpu_type, named))


def _named_gpus(context: Context) -> Iterator[Change]:
    """`os.environ["CUDA_VISIBLE_DEVICES"] = "0"`, the same on every process, here or in a file that is not changed."""
    module, training = context.module, context.training
    others: list[Module] = []
    if training.place.module is module:
        others = [
            m for m in loaded_with(context.script.project, module, training.place.after) if m not in training.modules
        ]
    for owner in (module, *others):
        for node in naming_gpus(owner):
            value = named_gpus(owner, node)
            if value is None or training.flow.depends(owner, value):
                continue
            where = "here" if owner is module else f"in {owner.source.path.name}:{value.lineno}"
            message = (
                f"every process sees only the GPUs that are named {where}: one GPU is shared by all of them, and of several "
                "each takes its own, at most one process per GPU; take it out, and set CUDA_VISIBLE_DEVICES where you launch"
            )
            place = node if owner is module else training.place.after
            yield note(context, CODE, place, message)
            return


def _moves_that_stay(context: Context) -> Iterator[Change]:
    """`.cuda()` where no Accelerator comes: in a file that is not changed, or in the forward pass of a model."""
    module, training = context.module, context.training
    owners = [module]
    if training.place.module is module:
        owners += [
            m for m in loaded_with(context.script.project, module, training.place.after) if m not in training.modules
        ]
    taken = {move.call for each in context.script.trainings for move in each.dropped}
    for each in context.script.trainings:
        taken |= {move.call for move in each.kept if each.accelerator(move.module, move.call) is not None}
    staying = [
        (owner, move.call)
        for owner in owners
        for move in moves_in(context.script.roles, owner)
        if (move.device is None or isinstance(move.device, ast.Constant))
        and move.call not in taken
        and not _is_guarded(owner, move.call)
        and may_run(context.script, training, owner, move.call)
    ]
    if staying:
        shown = [(owner, call, unparse(call)) for owner, call in staying]
        places = ", ".join(
            f"`{text if len(text) < 50 else text[:40] + ' ...'}` ({owner.source.path.name}:{call.lineno})"
            for owner, call, text in shown
        )
        message = (
            f"{places} {'stays' if len(shown) == 1 else 'stay'} on a CUDA GPU, whatever the Accelerator's device is: without "
            "one, or with `accel launch --cpu`, this fails; move it to the device of a tensor that it meets"
        )
        place = next((call for owner, call in staying if owner is module), training.place.after)
        yield note(context, CODE, place, message)


def _device_that_stays(context: Context) -> Iterator[Change]:
    """`Net(config.device)`, where moves to `config.device` went to the Accelerator: another file goes on choosing it."""
    script, training = context.script, context.training
    moves = [move for move in (*training.dropped, *training.kept) if move.device is not None]
    replaced: set[ast.expr | None] = {m.device for m in moves if training.accelerator(m.module, m.call) is not None}
    replaced |= training.reach.taken_over(script.graph)
    chosen = {move.module.qualified(move.device) for move in moves if move.device is not None} - {None}
    if training.place.module is not context.module or training.start.device or not chosen:
        return
    for module in loaded_with(script.project, context.module, training.place.after):
        for node in module.walk(module.tree, ast.Name, ast.Attribute):
            if module.qualified(node) not in chosen or not _is_handed(module, node):
                continue
            if node in replaced or node in training.gone or not may_run(script, training, module, node):
                continue
            if goes_by_cuda(script.graph, module, context.module, node):
                continue  # the launcher hides the GPUs of CUDA where it keeps a script on the CPU
            message = (
                f"`{unparse(node)}` ({module.source.path.name}:{node.lineno}) is still the script's own choice, whatever the "
                "Accelerator's device is: on a machine with a GPU, with `accel launch --cpu`, this fails; hand over "
                "accelerator.device"
            )
            place = node if module is context.module else training.place.after
            yield note(context, CODE, place, message)
            return


def _is_handed(module: Module, node: ast.expr) -> bool:
    """Whether a call gets a device, to put something on it or to keep it."""
    above = module.parents[node]
    call = module.parents[above] if isinstance(above, ast.keyword) else above
    return isinstance(call, ast.Call) and call.func is not node and unparse(call.func) not in ("print", "str")


def _is_guarded(module: Module, node: ast.AST) -> bool:
    """Whether the script asks for a GPU first: `if torch.cuda.is_available():`, `if device.type == "cuda":`."""
    for parent in module.ancestors(node):
        if isinstance(parent, ast.If | ast.IfExp | ast.While):
            asked = unparse(parent.test)
            if "cuda" in asked and not asked.startswith("not "):
                return True
    return False


RULE = Rule(
    code=CODE,
    summary="calls that need a CUDA GPU",
    why="The Accelerator runs on whatever there is; these calls fail or do nothing elsewhere. They are left as they are, "
    "because what they measure or make is the author's business.",
    example_before="torch.cuda.synchronize()",
    find=find,
    safety=Safety.NOTE,
)
