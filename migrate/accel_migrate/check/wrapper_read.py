"""AM965: nothing takes the model out of a wrapper that one process does not have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.check.devices_together import Devices
from accel_migrate.check.evidence import Evidence, Side
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module

_SHAPES = ("repeat", "expand", "view", "reshape", "tile", "chunk", "split", "repeat_interleave")
_TELL = ("'module'", "DataParallel", "num_processes", "DDP")
_ASKS = ("'module'", "isinstance(", "type(", "__class__")  # the model itself, not how many processes there are
_OF_DDP = frozenset(
    [
        *(
            "no_sync",
            "join",
            "join_hook",
            "register_comm_hook",
            "device",
            "device_ids",
            "output_device",
            "process_group",
        ),
        *("reducer", "logger", "require_backward_grad_sync", "require_forward_param_sync", "broadcast_buffers"),
        *("find_unused_parameters", "static_graph", "_set_static_graph", "_get_ddp_logging_data"),
    ]
)
_OF_DP = frozenset(["device_ids", "output_device", "dim", "src_device_obj"])


def find(project: Project) -> Iterator[Violation]:
    for file, node in _found(project.evidence):
        where = " on one process, where" if project.evidence.after.wraps_models else ":"
        message = f"`{unparse(node)[:60]}` would fail{where} prepare() returns the model itself"
        yield Violation("AM965", file.path, node.lineno, message)
    for file, node in _taken_out_of_parts(project.evidence):
        message = f"`{unparse(node)[:60]}` would fail: the part of the model is in no DataParallel any more"
        yield Violation("AM965", file.path, node.lineno, message)
    for file, node in _asked_of_ddp(project.evidence):
        message = f"`{unparse(node)[:60]}` would be asked of the model itself, which is not a DistributedDataParallel"
        yield Violation("AM965", file.path, node.lineno, message)
    for file, node in _asked_of_lost(project.evidence):
        message = f"`{unparse(node)[:60]}` would be asked of the model itself, which has no such attribute"
        yield Violation("AM965", file.path, node.lineno, message)
    for file, call in _handed_itself(project.evidence.after):
        message = f"`{unparse(call)[:60]}` would be handed the wrapper on many processes, beside the model without it"
        yield Violation("AM965", file.path, call.lineno, message)
    for file, argument in _prepared_in_parallel(project.evidence.after):
        message = f"prepare() would get `{unparse(argument)[:60]}`, which may be a DataParallel"
        yield Violation("AM965", file.path, argument.lineno, message)
    for file, call in _run_in_parallel(project.evidence.after):
        message = f"`{unparse(call)[:60]}` would spread a prepared model over all GPUs, on each process"
        yield Violation("AM965", file.path, call.lineno, message)
    for file, attribute in _set_on_wrapper(project.evidence):
        text = unparse(attribute)
        message = f"`{text}` was set on the DataParallel, past the model in it, and would be the model's from now on"
        yield Violation("AM965", file.path, attribute.lineno, message)
    for file, read in _counted_gpus(project.evidence):
        above = unparse(file.parents[read])[:60]
        message = (
            f"`{above}` would go on counting GPUs among which DataParallel split each batch, and DataParallel goes"
        )
        yield Violation("AM965", file.path, getattr(read, "lineno", 1), message)


def _prepared_in_parallel(side: Side) -> Iterator[tuple[Module, ast.expr]]:
    """A model that another file, or a function of this one, has put into a DataParallel by the time it is prepared."""
    for file, call in side.asked("prepare"):
        for argument in call.args:
            made = side.flows.made(file, argument, "parallel")
            if any(side.may_follow(file, call, each.node) for each in made):
                yield file, argument


def _run_in_parallel(side: Side) -> Iterator[tuple[Module, ast.Call]]:
    """`nn.parallel.data_parallel(model, x)`: torch's function, which does for one call what DataParallel does."""
    for file, call in side.of_library(".data_parallel"):
        if any(side.flows.made(file, argument, "prepared") for argument in call.args[:1]):
            yield file, call


def _set_on_wrapper(evidence: Evidence) -> Iterator[tuple[Module, ast.Attribute]]:
    """`model.rate = 1` of a DataParallel in the original: the model inside never saw it, and now would."""
    if evidence.after.of_library(".DataParallel"):
        return
    for file, node in _of_wrappers(evidence.before, ".DataParallel"):
        if isinstance(node.ctx, ast.Store):
            yield file, node


def _asked_of_lost(evidence: Evidence) -> Iterator[tuple[Module, ast.Attribute]]:
    """`net.module` of a wrapper in the original, also of what nothing prepares, which the result still asks for."""
    asked = {
        _key(file, node)
        for wrapper, has in ((".DataParallel", _OF_DP), (".DistributedDataParallel", _OF_DDP - {"device"}))
        if not evidence.after.of_library(wrapper)
        for file, node in _of_wrappers(evidence.before, wrapper)
        if node.attr in has and isinstance(node.ctx, ast.Load)
    }
    asked |= _taken_out(evidence)
    for file in evidence.after.files if asked else ():
        for node in file.walk(file.tree, ast.Attribute):
            if _key(file, node) in asked and not _is_asked(evidence.after, file, node):
                yield file, node


def _taken_out(evidence: Evidence) -> set[tuple[Path, str, str]]:
    """Each `net.module` of the original that may be asked of a wrapper which the result does not have, however it came there."""
    kinds = ((".DataParallel", "parallel"), (".DistributedDataParallel", "distributed"))
    gone = {k for name, k in kinds if evidence.before.of_library(name) and not evidence.after.of_library(name)}
    return {
        _key(file, node)
        for file in (evidence.before.files if gone else ())
        for node in file.walk(file.tree, ast.Attribute)
        if node.attr == "module" and isinstance(node.ctx, ast.Load)
        if any(made.kind in gone for made in evidence.before.flows.made(file, node.value))
    }


def _key(file: Module, node: ast.Attribute) -> tuple[Path, str, str]:
    """What finds a node again in the other version: the same text in a function of that name."""
    return file.path, getattr(file.scope(node).function, "name", ""), unparse(node)


def _of_wrappers(side: Side, wrapper: str) -> Iterator[tuple[Module, ast.Attribute]]:
    """The attributes of what a name is once it is set to a wrapper."""
    wrappings = side.of_library(wrapper)
    wrapped = [(f, c, unparse(a.targets[0])) for f, c in wrappings if isinstance(a := f.statement(c), ast.Assign)]
    for file, call, text in wrapped:
        for node in file.walk(file.tree, ast.Attribute):
            if unparse(node.value) == text and side.may_follow(file, node, call):
                yield file, node


def _taken_out_of_parts(evidence: Evidence) -> Iterator[tuple[Module, ast.Attribute]]:
    """`model.features.module` where the original had put `model.features` into a DataParallel and the result does not."""
    lost = _wrapped_parts(evidence.before) - _wrapped_parts(evidence.after)
    for file in evidence.after.files if lost else ():
        for node in file.walk(file.tree, ast.Attribute):
            is_read = node.attr == "module" and getattr(node.value, "attr", "") in lost
            if is_read and not _is_asked(evidence.after, file, node):
                yield file, node


def _wrapped_parts(side: Side) -> set[str]:
    """The attributes that are set to a DataParallel of themselves."""
    found = set()
    for file, call in side.of_library(".DataParallel"):
        statement = file.parents[call]
        if isinstance(statement, ast.Assign):
            found |= {target.attr for target in statement.targets if isinstance(target, ast.Attribute)}
    return found


def _counted_gpus(evidence: Evidence) -> Iterator[tuple[Module, ast.expr]]:
    """`proto.repeat(num_gpu, 1, 1)` in a loop, where `num_gpu` told DataParallel how many copies of the model there are."""
    told = {
        _last_name(part)
        for file, call in evidence.before.calls
        if (file.qualified(call.func) or "").endswith(".DataParallel")
        for given in (*call.args[1:2], *[keyword.value for keyword in call.keywords if keyword.arg == "device_ids"])
        for part in walk(given)
    } - {"", "range", "list", "len", "args", "opt", "self", "torch", "cuda"}
    side = evidence.after
    gone = not any((file.qualified(call.func) or "").endswith(".DataParallel") for file, call in side.calls)
    for file in side.involved if told and gone else ():
        for node in file.walk(file.tree, ast.Name, ast.Attribute):
            if isinstance(node, ast.expr) and _last_name(node) in told and _shapes_a_tensor(file, node):
                yield file, node


def _last_name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _shapes_a_tensor(file: Module, node: ast.expr) -> bool:
    """Whether a number is given to a method that changes the shape of a tensor."""
    above = file.parents[node]
    while isinstance(above, ast.BinOp | ast.Call) and not (
        isinstance(above, ast.Call) and isinstance(above.func, ast.Attribute) and above.func.attr in _SHAPES
    ):
        node, above = above, file.parents[above]
    return isinstance(above, ast.Call) and node in above.args


def _handed_itself(side: Side) -> Iterator[tuple[Module, ast.Call]]:
    """`accelerator.unwrap_model(model).serialize(model)`: of one model, the method would read the wrapper's attributes."""
    bare = {call for _, call in side.asked("unwrap_model") if call.args} if side.wraps_models else set()
    for file, call in side.calls:
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if owner in bare and isinstance(owner, ast.Call):
            given = [*call.args, *[keyword.value for keyword in call.keywords]]
            if any(unparse(argument) == unparse(owner.args[0]) for argument in given):
                yield file, call


def _found(evidence: Evidence) -> Iterator[tuple[Module, ast.Attribute]]:
    side = evidence.after
    for file in side.files:
        for node in file.walk(file.tree, ast.Attribute):
            if node.attr == "module" and isinstance(node.ctx, ast.Load):
                if _is_prepared_model(side, file, node.value) and not _is_asked(side, file, node):
                    yield file, node


def _asked_of_ddp(evidence: Evidence) -> Iterator[tuple[Module, ast.Attribute]]:
    """`model.join()`, `model.register_comm_hook(...)`: what the model itself does not have."""
    side = evidence.after
    if not any((f.qualified(c.func) or "").endswith(".DistributedDataParallel") for f, c in evidence.before.calls):
        return
    for file in side.files:
        original = evidence.before.file(file.path)
        bare = (
            {unparse(node) for node in original.walk(original.tree, ast.Attribute)} if original is not None else set()
        )
        for node in file.walk(file.tree, ast.Attribute):
            if node.attr in _OF_DDP and isinstance(node.ctx, ast.Load):
                if f"{unparse(node.value)}.module.{node.attr}" in bare and unparse(node) not in bare:
                    continue  # the original asked the model in the wrapper
                if node.attr == "device" and _is_of_transformers(side, file, node.value):
                    continue
                if _is_prepared_model(side, file, node.value) and not _is_asked(side, file, node):
                    yield file, node


def _is_of_transformers(side: Side, file: Module, model: ast.expr) -> bool:
    """Whether it was a model of transformers before it was prepared, which says where its weights are, as the wrapper does."""
    prepared = side.flows.made(file, model, "prepared")
    given = [
        (owner, call.args[made.index])
        for made in prepared
        for owner, call in side.asked("prepare")
        if made.node is call and made.index < len(call.args)
    ]
    values = [[v for v in side.once(Devices).assigned(owner, each) if isinstance(v, ast.Call)] for owner, each in given]
    return bool(values) and all(
        any((owner.qualified(value.func) or "").startswith("transformers.") for value in found)
        for (owner, _), found in zip(given, values)
    )


def _is_prepared_model(side: Side, file: Module, node: ast.expr) -> bool:
    """Whether it may be what `prepare` gave for something that is not a loader."""
    for made in side.flows.made(file, node, "prepared"):
        call = made.node
        assert isinstance(call, ast.Call)
        if made.index < len(call.args):
            owner = next(f for f, c in side.asked("prepare") if c is call)
            if not side.flows.made(owner, call.args[made.index], "loader"):
                return True
    return False


def _is_asked(side: Side, file: Module, node: ast.AST) -> bool:
    """Whether a condition around it, or an `except`, tells whether there is a wrapper."""
    for above in file.ancestors(node):
        test = unparse(above.test) if isinstance(above, ast.If | ast.IfExp | ast.While) else ""
        if any(word in test for word in _TELL) and (side.wraps_models or any(word in test for word in _ASKS)):
            return True
        if isinstance(above, ast.Try) and any("AttributeError" in unparse(h.type or h) for h in above.handlers):
            return True
        if isinstance(above, Function):
            return False
    return False


CONDITION = Condition(
    code="AM965",
    name="wrapper_read",
    summary="a model would be taken out of a wrapper that one process does not have",
    why="DataParallel and DistributedDataParallel of the script are gone: `prepare` returns the model itself, with "
    "`--target accelerate` on one process only. So nothing may read `.module`, or what else a wrapper has. A DataParallel that "
    "is left somewhere must not be what is prepared: it wants the first GPU. And a tensor that was "
    "shaped for as many GPUs as DataParallel had would be too long for the one that a process has.",
    example_before="model = accelerator.prepare(model)\nif several:\n    bare = model.module",
    example_after="model = accelerator.prepare(model)\nif several:\n    bare = model",
    find=find,
)
