"""AM104: an import goes when everything that used it went; variables follow once the rewrite is made."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.placement.starts import names_in
from accel_migrate.edits import change
from accel_migrate.effects import only_loads
from accel_migrate.emit import accelerator_statement
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.scopes import Module
from accel_migrate.plan import Change, Unimport
from accel_migrate.rule import Context, Rule

CODE = "AM104"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    gone = training.gone
    read = module.walk(module.tree, ast.Name)
    left = {name.id for name in read if name not in gone}
    lost = {name.id for name in read if name in gone} - left - _named_in_text(module)
    lost -= names_in(accelerator_statement(context)) | _written_again(context)
    if not lost:
        return
    files = [other.source for other in context.script.project.modules]
    for statement in module.tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            bound = {alias: alias.asname or alias.name.split(".")[0] for alias in statement.names}
            unused = [alias for alias, name in bound.items() if name in lost]
            if not unused or (len(unused) == len(bound) and not only_loads(statement, files)):
                continue
            if not _binds_others(module, bound, unused):
                names = ", ".join(bound[alias] for alias in unused)
                edits = [Unimport(statement, alias) for alias in unused]
                yield change(context, CODE, statement, f"nothing uses {names} any more", edits, required=False)


def _written_again(context: Context) -> set[str]:
    """What stands in the text that a statement gives way to, such as one of its own branches."""
    texts = [(one.module, one.node, one.text) for one in context.training.distribution.replacements if one.text]
    return {
        name
        for module, node, text in texts
        if module is context.module and isinstance(node, ast.stmt)
        for name in names_in(text)
    }


def _named_in_text(module: Module) -> set[str]:
    """What `__all__` hands on."""
    return {
        node.value
        for statement in module.tree.body
        if isinstance(statement, ast.Assign) and unparse(statement.targets[0]) == "__all__"
        for node in module.walk(statement)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _binds_others(module: Module, bound: dict[ast.alias, str], unused: list[ast.alias]) -> bool:
    """`import torch.distributed` binds `torch`, which much else may need; other statements may bind the name too."""
    names = {bound[alias] for alias in unused}
    return any(len(module.root.bindings.get(name, ())) != 1 for name in names)


RULE = Rule(
    code=CODE,
    summary="imports and variables that nothing uses any more go",
    why="A script that no longer names DistributedSampler or GradScaler should not import them, nor keep the name of a backend "
    "that nobody reads. Only what the migration itself made unused goes, and only where binding it does nothing else: a "
    "file of the author's own may seed or set things as it is imported. Options of the script that nothing reads any more stay, "
    "since commands may pass them, and are named.",
    example_before="from torch.cuda.amp import GradScaler",
    example_after="",
    find=find,
)
