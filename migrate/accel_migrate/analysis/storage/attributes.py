"""Parts, methods, class and looks that only the model itself has: a wrapper for several processes hides them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from accel_migrate.analysis.processes.timing import Timing, is_built_anew
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.methods import ForwardMethod
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.torch_api import ITSELF

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

_BUILTINS = {
    "print", "str", "repr", "len", "iter", "next", "list", "tuple", "set", "dict", "enumerate", "reversed", "zip", "sum",
    "vars", "dir",
}  # fmt: skip
_BY_NAME = {"getattr", "hasattr", "setattr", "delattr"}


class Question(NamedTuple):
    """What asks a model for something that its wrapper does not have, or answers otherwise."""

    module: Module
    node: ast.expr | ast.For | ast.AsyncFor  # `model.fc`, `model[0]`, `len(model)`, `for layer in model`
    model: ast.expr

    @property
    def text(self) -> str:
        """What is asked for, in a message."""
        match self.node:
            case ast.Attribute(attr=name):
                return f"`{name}`"
            case ast.Call(func=function):
                return f"{ast.unparse(function)}()"
        return f"`{ast.unparse(self.node.target)}`" if isinstance(self.node, ast.For) else f"`{ast.unparse(self.node)}`"


def own_attributes(
    graph: CallGraph,
    modules: tuple[Module, ...],
    aliases: frozenset[Variable],
    timing: Timing,
    methods: tuple[ForwardMethod, ...],
) -> Iterator[Question]:
    """Each question to a prepared model that its wrapper answers otherwise, once it is prepared; with the model in it."""
    registered: set[ast.AST] = {method.call.func for method in methods if method.is_known}
    for module in modules:
        models = [(n, v) for v, named in module.named.items() if graph.roles.of(v) & Role.MODEL for n in named]
        for node, variable in sorted(models, key=lambda each: module.position(each[0])):
            if isinstance(node.ctx, ast.Store):
                continue
            asked = _question(module, node)
            if asked is None or asked in registered or not timing.after_prepare(module, node):
                continue
            if is_built_anew(graph.roles, timing, module, node):
                continue
            if any(link in aliases for link in chain(graph, variable)):
                yield Question(module, asked, node)


def _question(module: Module, model: ast.Name | ast.Attribute) -> ast.expr | ast.For | ast.AsyncFor | None:
    """The node around a model that asks it for something; None where a wrapper answers the same."""
    inner: ast.expr = model
    above = module.parents.get(inner)
    while isinstance(above, ast.Attribute) and above.attr in ITSELF:  # `model.cpu().fc`
        call = module.parents[above]
        if not isinstance(call, ast.Call) or call.func is not above:
            break
        inner, above = call, module.parents[call]
    match above:
        case ast.Attribute(attr=name) if name == "__class__" or not (name in _SHARED or name.startswith("__")):
            return above
        case ast.Subscript(value=asked) | ast.For(iter=asked) | ast.AsyncFor(iter=asked):
            return above if asked is inner else None
        case ast.comprehension(iter=asked) if asked is inner:
            return inner
        case ast.FormattedValue(value=asked) | ast.BinOp(op=ast.Mod(), right=asked) if asked is inner:
            return inner  # `f"best_{model}.pt"`
        case ast.Starred() | ast.Compare(ops=[ast.In() | ast.NotIn()]):
            return above
        case ast.Call(func=ast.Name(id="type"), args=[_], keywords=[]):
            return above if isinstance(module.parents[above], ast.Attribute) else None  # `type(model).__name__`
        case ast.Call(func=ast.Name(id="isinstance"), args=[asked, kinds]) if asked is inner:
            return above if "Parallel" not in ast.unparse(kinds) else None
        case ast.Call(func=ast.Name(id=name)) if name in _BUILTINS and inner in above.args:
            return above
        case ast.Call(func=ast.Name(id=name), args=[asked, key, *_]) if name in _BY_NAME and asked is inner:
            return above if not (isinstance(key, ast.Constant) and key.value in _SHARED) else None
    return None
