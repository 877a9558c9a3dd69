"""What no rewrite carries over: other engines, and ways to train that are not data parallel."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accel_migrate.analysis.moves.devices import unwrapped
from accel_migrate.analysis.values.provenance import NotMigrated
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.libraries import is_library
from accel_migrate.flow.nodes import all_arguments, calls_method, unparse
from accel_migrate.flow.scopes import Module

_ENGINES = {
    "apex.parallel": "apex.parallel has a wrapper and a batch norm of its own; use those of torch (torch.nn.SyncBatchNorm) first",
    "apex.optimizers": "apex.optimizers are not torch's; use those of torch.optim first",
    "apex": "apex does its own mixed precision; move to torch.amp (torch.autocast and GradScaler) first",
    "torch.distributed.fsdp": "the model is sharded by FSDP in the script; leave that to `accel launch --use_fsdp`",
    "torch.distributed.rpc": "torch.distributed.rpc splits the work in a way that is not data parallel",
    "torch.distributed.pipelining": "a pipeline splits the model over devices, which is not data parallel",
    "fairscale": "fairscale shards the model in the script; leave that to `accel launch --use_fsdp`",
    "tensor_parallel": "tensor_parallel splits the layers of the model over GPUs, which is not data parallel",
    "horovod": "horovod starts the processes and connects them; take it out first",
    "bagua": "bagua starts the processes and connects them; take it out first",
}
_BY_HAND = {
    "torch.multiprocessing.Process": "processes are started one by one; start them with `accel launch`",
    "multiprocessing.Process": "processes are started one by one; start them with `accel launch`",
    "torch.distributed.new_group": "processes are split into groups, which have no counterpart",
}
HANDED_A_GRADIENT = "the backward pass is handed a gradient of its own, which accelerator.backward() does not take"
HIDDEN = re.compile(r"(^|[._])(loss_|grad_|native_)?scaler$")
_GPU = re.compile(r"cuda:(\d+)")


def check(roles: Roles, modules: list[Module]) -> None:
    """Raises NotMigrated at the first thing that stands in the way."""
    for module in modules:
        for dotted, calls in module.imported_calls.items():  # in the order of their first calls
            for engine, reason in _ENGINES.items():
                if dotted == engine or dotted.startswith(engine + "."):
                    raise NotMigrated(reason, (module, calls[0]))
            if dotted in _BY_HAND:
                raise NotMigrated(_BY_HAND[dotted], (module, calls[0]))
            spread = next((call for call in calls if _spreads(roles, module, dotted, call)), None)
            if spread is not None:
                raise NotMigrated(
                    f"{unparse(spread.func)}() spreads the model over GPUs by itself, and what it does is not known; take it out "
                    "first",
                    (module, spread),
                )
        _check_gpus(module)


def _spreads(roles: Roles, module: Module, dotted: str, call: ast.Call) -> bool:
    """Whether a wrapper that is not torch's, nor to be read, puts a model on several devices: by its name, or by theirs."""
    named = "DataParallel" in dotted.rpartition(".")[2] or any(keyword.arg == "device_ids" for keyword in call.keywords)
    return named and not dotted.startswith("torch.") and roles.target(module, call) is None


def hidden_backwards(roles: Roles, module: Module) -> Iterator[tuple[ast.Call, str]]:
    """What trains in a way that is not a plain backward pass: a helper that runs it, a gradient that is handed in."""
    for call in module.calls:
        if not isinstance(call.func, ast.Name | ast.Attribute):
            continue
        if len(call.args) >= 2 and HIDDEN.search(name := unparse(call.func)) and "optim" in unparse(call.args[1]):
            yield (
                call,
                (
                    f"{name}() runs the backward pass and steps out of sight; write out what it does (backward, clip, step) first"
                ),
            )
        elif is_handed_a_gradient(roles, module, call):
            yield call, HANDED_A_GRADIENT


def is_handed_a_gradient(roles: Roles, module: Module, call: ast.Call) -> bool:
    """`loss.backward(loss)`, beside an optimizer that steps."""
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr != "backward" or not (call.args or call.keywords):
        return False
    if not (call.args or any(keyword.arg == "gradient" for keyword in call.keywords)):
        return False
    around = module.scope(call).function or module.tree
    steps = [c for c in module.walk(around, ast.Call) if isinstance(c.func, ast.Attribute)]
    value = roles.value(module, function.value)
    if value.owner is not None or value.role & (Role.MODEL | Role.OPTIMIZER) or module.qualified(function) is not None:
        return False
    return any(
        c.func.attr == "step" and roles.of(module.variable(c.func.value)) & Role.OPTIMIZER  # type: ignore[attr-defined]
        for c in steps
    )


def handed_away(roles: Roles, module: Module) -> Iterator[tuple[ast.Call, str]]:
    """Calls that hand model and optimizer to a function that cannot be followed."""
    for call in module.calls:
        dotted = module.full_name(call.func)
        if not dotted or dotted.startswith("torch.") or roles.target(module, call) is not None:
            continue
        handed = all_arguments(call)
        held = [roles.role(module, argument) for argument in handed]
        if (
            roles.role(module, call)
            or not any(r & Role.MODEL for r in held)
            or not any(r & Role.OPTIMIZER for r in held)
        ):
            continue
        engine = next((why for name, why in _ENGINES.items() if dotted.startswith(f"{name}.")), None)
        yield (
            call,
            engine
            or f"{unparse(call.func)}() is handed the model and the optimizer, and {_unknown(roles, module, dotted)}",
        )


def _unknown(roles: Roles, module: Module, dotted: str) -> str:
    """Why it is not known what a function of this name does."""
    owner = dotted.rpartition(".")[0]
    outer, _, name = owner.rpartition(".")
    for holder in (owner, outer if name[:1].isupper() else ""):  # the file, or the file of the class
        if holder and roles.project.imported_module(module, holder) is not None:
            return (
                "it is called through its class, or set in several ways, so it is not followed; call it by its own name"
            )
    if is_library(dotted):
        return f"what {dotted.partition('.')[0]} does with them is not known"
    there = [m.source.path for m in roles.project.modules if m.source.path.stem in dotted.split(".")[:-1]]
    if there:
        return (
            f"its import does not lead to {there[0]} from here, as where sys.path is changed; import by a path that the "
            "folders show"
        )
    return "its file is not among those that were given and could be read; if it trains, name that file too"


def _check_gpus(module: Module) -> None:
    """Two GPUs by number in one script: parts of the model, or of the data, live on different ones."""
    seen: dict[str, ast.AST] = {}
    for call in module.calls:
        if not calls_method(call, "to", "cuda"):
            continue
        for argument in all_arguments(call):
            number = _gpu_number(module, argument)
            if number is not None:
                seen.setdefault(number, call)
    if len(seen) > 1:
        last = list(seen.values())[-1]
        raise NotMigrated(
            f"parts of the model live on different GPUs ({', '.join(f'cuda:{n}' for n in sorted(seen))}), which is not "
            "data parallel",
            (module, last),
        )


def _gpu_number(module: Module, node: ast.expr) -> str | None:
    node = unwrapped(module, module.only_value(node) or node)
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str) and (found := _GPU.fullmatch(node.value)):
            return found.group(1)
        if isinstance(node.value, int) and not isinstance(node.value, bool):
            return str(node.value)
    return None
