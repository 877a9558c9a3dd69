"""Parts, methods, class and looks that only the model itself has: a wrapper for several processes hides them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.processes.timing import Timing
from accel_migrate.analysis.program.scopes import Module, Variable
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.methods import ForwardMethod
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role, Roles

# What every module has, a wrapper too, and means the same by it; and what only the wrapper has.
_SHARED = {
    "join", "require_backward_grad_sync",  # of the wrapper itself
    "T_destination", "add_module", "apply", "bfloat16", "buffers", "compile", "cpu", "cuda", "device", "double", "eval",
    "extra_repr", "float", "forward", "half", "load_state_dict", "module", "modules", "no_sync", "parameters",
    "register_backward_hook", "register_buffer", "register_forward_hook", "register_forward_pre_hook",
    "register_full_backward_hook", "register_module", "register_parameter", "requires_grad_", "share_memory",
    "state_dict", "to", "train", "training", "type", "zero_grad", "register_comm_hook",
    "require_forward_param_sync", "reducer", "device_ids", "output_device", "process_group",
}  # fmt: skip

Asked = ast.Attribute | ast.Call  # `model.fc`, `type(model)`


def own_attributes(
    roles: Roles,
    graph: CallGraph,
    modules: tuple[Module, ...],
    aliases: frozenset[Variable],
    timing: Timing,
    methods: tuple[ForwardMethod, ...],
) -> Iterator[tuple[Module, Asked]]:
    """Each question to a prepared model that its wrapper answers otherwise, where the model is prepared already."""
    registered: set[ast.AST] = {method.call.func for method in methods}
    for module in modules:
        for node in module.walk(module.tree, ast.Attribute, ast.Call):
            if node in registered or not _is_asked(module, node):
                continue
            assert isinstance(node, ast.Attribute | ast.Call)
            owner = owner_of(node)
            variable = module.variable(owner) if isinstance(owner, ast.Name | ast.Attribute) else None
            if variable is None or not roles.of(variable) & Role.MODEL or not timing.after_prepare(module, node):
                continue
            if any(link in aliases for link in chain(roles, graph, variable)):
                yield module, node


def owner_of(node: Asked) -> ast.expr:
    """What is asked: `model` of `model.fc` and of `type(model)`."""
    return node.value if isinstance(node, ast.Attribute) else node.args[0]


def _is_asked(module: Module, node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr=name):
            return name == "__class__" or (name not in _SHARED and not name.startswith("__"))
        case ast.Call(func=ast.Name(id="type"), args=[_], keywords=[]):
            return isinstance(module.parents[node], ast.Attribute)  # `type(model).__name__`
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]):
            return "Parallel" not in ast.unparse(kinds)
        case ast.Call(func=ast.Name(id="print" | "str" | "repr" | "len"), args=[_]):
            return True
    return False
