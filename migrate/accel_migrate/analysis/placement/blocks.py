"""The statements of one block: where others stand in it, and which of them change the objects of a training."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accel_migrate.flow.nodes import all_arguments, called_name
from accel_migrate.flow.scopes import Module, Variable

_AFFECTS = {
    "load_state_dict", "apply", "to", "cuda", "requires_grad_", "half", "float", "bfloat16", "init_weights",
    "reset_parameters", "register_buffer", "gradient_checkpointing_enable", "resize_token_embeddings",
    "add_param_group", "share_memory", "compile", "add_module", "load_pretrained", "freeze",
    "append", "extend", "insert",
}  # fmt: skip
_READS = {
    "len", "print", "tqdm", "isinstance", "type", "str", "id", "enumerate", "iter", "next", "watch", "summary", "sum",
}  # fmt: skip


def member(module: Module, statement: ast.AST, block: list[ast.stmt]) -> ast.stmt | None:
    """The statement of `block` that is, or holds, the given one."""
    members = {id(item): item for item in block}
    node: ast.AST | None = statement
    while node is not None:
        if id(node) in members:
            return members[id(node)]
        node = module.parents.get(node)
    return None


def positions(module: Module, block: list[ast.stmt], statements: Iterable[ast.stmt]) -> list[int]:
    """Where in a block statements stand, by themselves or inside others; those elsewhere are left out."""
    order = {id(statement): index for index, statement in enumerate(block)}
    return [order[id(above)] for s in statements if (above := member(module, s, block)) is not None]


def first_made(module: Module, block: list[ast.stmt], made_of: set[Variable], start: int = 0) -> int:
    """The first statement of a block, from `start` on, that binds one of the variables; the length of the block if none does."""
    statements = {id(binding.statement) for variable in made_of for binding in module.bindings(variable)}
    return next((index for index in range(start, len(block)) if id(block[index]) in statements), len(block))


def end_of_paragraph(module: Module, block: list[ast.stmt], last: int, limit: int, variables: set[Variable]) -> int:
    """Lines that belong together stay together: go on to the next blank line or use of the objects."""
    while last + 1 < limit:
        here, following = block[last], block[last + 1]
        simple = isinstance(following, ast.Assign | ast.AnnAssign | ast.Expr)
        if not simple or following.lineno != (here.end_lineno or here.lineno) + 1:
            break
        if any(module.variable(n) in variables for n in module.walk(following, ast.Name, ast.Attribute)):
            break
        last += 1
    return last


def affects(module: Module, statement: ast.stmt, variables: set[Variable]) -> bool:
    """Whether a statement changes the objects, or makes something of them that must be made of the bare ones."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return any(_changes(module, node, variables) for node in module.walk(statement))


def _changes(module: Module, node: ast.AST, variables: set[Variable]) -> bool:
    match node:
        case ast.For(iter=looped):  # over layers, parameters or batches
            return any(module.variable(part) in variables for part in module.walk(looped, ast.Name, ast.Attribute))
        case (
            ast.Attribute(ctx=ast.Store() | ast.Del(), value=owner)
            | ast.Subscript(ctx=ast.Store() | ast.Del(), value=owner)
        ):
            return _is_part(module, owner, variables)
        case ast.Call(func=ast.Attribute(attr=name, value=owner)) if _is_part(module, owner, variables):
            if module.variable(owner) in variables:
                return name in _AFFECTS or name.startswith("register_")
            return name in _AFFECTS or name.startswith("register_") or name.endswith("_")  # `model.bias.data.zero_()`
        case ast.Call(func=function):
            name = called_name(node)
            given = all_arguments(node)
            if module.full_name(function).startswith("torch.nn."):  # `nn.init.zeros_(model[0].weight)`
                return any(_is_part(module, argument, variables) for argument in given)
            return name not in _READS and any(module.variable(argument) in variables for argument in given)
    return False


def _is_part(module: Module, node: ast.expr, variables: set[Variable]) -> bool:
    """Whether an expression is one of the objects, or is reached from it: `model.layers[0].weight.data`."""
    while module.variable(node) not in variables:
        if not isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
            return False
        node = node.func if isinstance(node, ast.Call) else node.value
    return True
