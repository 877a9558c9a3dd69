"""Parts and methods that only the model itself has: a wrapper for several processes hides them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.homes import chain
from accel_migrate.analysis.loops import CallGraph
from accel_migrate.analysis.methods import ForwardMethod
from accel_migrate.analysis.roles import Role, Roles
from accel_migrate.analysis.scopes import Module, Variable
from accel_migrate.analysis.timing import Timing

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


def own_attributes(
    roles: Roles,
    graph: CallGraph,
    modules: tuple[Module, ...],
    aliases: frozenset[Variable],
    timing: Timing,
    methods: tuple[ForwardMethod, ...],
) -> Iterator[tuple[Module, ast.Attribute]]:
    """Each attribute of a prepared model that its wrapper does not have, where the model is prepared already."""
    registered: set[ast.AST] = {method.call.func for method in methods}
    for module in modules:
        for node in module.walk(module.tree):
            if (
                not isinstance(node, ast.Attribute)
                or node.attr in _SHARED
                or node.attr.startswith("__")
                or node in registered
            ):
                continue
            if not isinstance(node.value, ast.Name | ast.Attribute):
                continue
            variable = module.variable(node.value)
            if variable is None or not roles.of(variable) & Role.MODEL or not timing.after_prepare(module, node):
                continue
            if any(link in aliases for link in chain(roles, graph, variable)):
                yield module, node
