"""AM963: no object that holds the Accelerator is stored or copied whole."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.check.evidence import Side, is_accelerator
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module

_PICKLERS = ("pickle", "dill", "cloudpickle", "joblib")
_STORING = frozenset(
    ["torch.save", "copy.deepcopy", *[f"{name}.dump" for name in _PICKLERS], *[f"{name}.dumps" for name in _PICKLERS]]
)
_CHOOSING = frozenset(["__getstate__", "__reduce__", "__reduce_ex__", "__deepcopy__"])


def find(project: Project) -> Iterator[Violation]:
    side = project.evidence.after
    holders = _holders(side)
    for file, call in side.calls if holders else ():
        stored = _stored(file, call)
        if stored is None:
            continue
        for made in side.flows.made(file, stored, "instance"):
            if made.node in holders:
                message = f"`{unparse(call)[:60]}` would store the Accelerator that {holders[made.node]} holds"
                yield Violation("AM963", file.path, call.lineno, message)
                break


def _holders(side: Side) -> dict[ast.AST, str]:
    """The classes whose instances keep the Accelerator, also inside of what they keep, and do not say what is stored."""
    classes = [(file, node) for file in side.files for node in file.walk(file.tree, ast.ClassDef)]
    holders: dict[ast.AST, str] = {}
    found = -1
    while found < len(holders):
        found = len(holders)
        for file, owner in classes:
            if owner not in holders and not _chooses(owner) and _holds(side, file, owner, holders):
                holders[owner] = owner.name
    return holders


def _holds(side: Side, file: Module, owner: ast.ClassDef, holders: dict[ast.AST, str]) -> bool:
    if any(made.node in holders for base in owner.bases for made in side.flows.made(file, base, "class")):
        return True
    for node in walk(owner):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                assert isinstance(node, ast.Assign)
                kept = side.flows.made(file, node.value, "instance")
                if is_accelerator(target) or any(made.node in holders for made in kept):
                    return True
    return False


def _chooses(owner: ast.ClassDef) -> bool:
    return any(isinstance(node, Function) and getattr(node, "name", "") in _CHOOSING for node in owner.body)


def _stored(file: Module, call: ast.Call) -> ast.expr | None:
    """What a call stores or copies with all that it holds."""
    saves = isinstance(call.func, ast.Attribute) and call.func.attr == "save" and is_accelerator(call.func.value)
    if not saves and file.qualified(call.func) not in _STORING:
        return None
    stored = (
        call.args[0] if call.args else next((k.value for k in call.keywords if k.arg in ("obj", "value", "x")), None)
    )
    if isinstance(stored, ast.Attribute) and stored.attr == "__dict__":
        return stored.value
    if isinstance(stored, ast.Call) and isinstance(stored.func, ast.Name) and stored.func.id == "vars" and stored.args:
        return stored.args[0]
    return stored


CONDITION = Condition(
    code="AM963",
    name="stored_whole",
    summary="an object that holds the Accelerator would be stored",
    why="An Accelerator belongs to the process that made it: it cannot be pickled or copied, and the models beside it are those "
    "of a run on N processes. An object that a script stores whole must not get one.",
    example_before=(
        "class Tagger:\n    def __init__(self):\n        self.accelerator = Accelerator()\n\n"
        "pickle.dump(Tagger(), file)"
    ),
    example_after=("class Tagger:\n    def fit(self, accelerator):\n        ...\n\npickle.dump(Tagger(), file)"),
    find=find,
)
