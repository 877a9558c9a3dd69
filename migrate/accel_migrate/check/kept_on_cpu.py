"""AM958: what the original moved to the CPU still goes there."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.version import Version

CODE = "AM958"
_MODULE_LEVEL = ("torch.device", "device")


def find(project: Project) -> Iterator[Violation]:
    side = project.evidence.after
    if side.created and side.kept_on_cpu == side.created:
        return  # the Accelerator's device is the CPU as well
    for file in project.changed:
        had = list(_moves(file.before))
        if not had:
            continue
        has = Counter(move.scope for move in _moves(file.after))
        there = {scope.path for scope in file.after.names.scopes}
        for move in had:
            has[move.scope] -= 1
            if has[move.scope] < 0 and move.scope in there:
                line = file.before.code(move.call)
                yield Violation(
                    CODE, file.path, 1, f"something that `{line}` sends to the CPU would no longer go there"
                )
                return


class _Move(NamedTuple):
    scope: str
    call: ast.Call


def _moves(program: Version) -> Iterator[_Move]:
    """What goes to the CPU, function by function."""
    if b"cpu" not in program.source.data and b"map_location" not in program.source.data:
        return
    cpu = _Cpu(program)
    for call in program.names.calls:
        if cpu.receives(call.node):
            yield _Move(call.scope.frame.path, call.node)


class _Cpu:
    """Expressions that are the CPU whatever happens: its name, its device, and names bound to nothing else."""

    def __init__(self, program: Version) -> None:
        self.names = program.names
        self._known: dict[str, bool] = {}
        self._values: dict[str, list[ast.expr]] = {}
        for _, block in program.blocks:
            for statement in block:
                if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                    target = statement.targets[0]
                    if isinstance(target, ast.Name):
                        self._values.setdefault(target.id, []).append(statement.value)

    def receives(self, call: ast.Call) -> bool:
        """Whether a call sends something to the CPU."""
        named = {keyword.arg: keyword.value for keyword in call.keywords}
        if "map_location" in named:
            return self.is_cpu(named["map_location"])
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if method == "to":
            return any(self.is_cpu(each) for each in (*call.args, *named.values()))
        return method == "cpu" and not call.args

    def is_cpu(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Constant):
            return isinstance(node.value, str) and node.value.split(":")[0] == "cpu"
        if isinstance(node, ast.Call):
            return unparse(node.func) in _MODULE_LEVEL and len(node.args) == 1 and self.is_cpu(node.args[0])
        if isinstance(node, ast.Lambda):
            arguments = node.args.args
            return isinstance(node.body, ast.Name) and bool(arguments) and node.body.id == arguments[0].arg
        return isinstance(node, ast.Name) and self._is_only_cpu(node.id)

    def _is_only_cpu(self, name: str) -> bool:
        """Whether every binding of a name, in any scope of the file, is the CPU."""
        if name not in self._known:
            self._known[name] = False  # a name bound to itself is not known
            values = self._values.get(name, [])
            bound = sum(len(scope.bound(name)) for scope in self.names.scopes)
            self._known[name] = bool(values) and bound == len(values) and all(map(self.is_cpu, values))
        return self._known[name]


CONDITION = Condition(
    code=CODE,
    name="kept_on_cpu",
    summary="something that went to the CPU would no longer go there",
    why="A move to the CPU says what it needs: numpy, a file that any machine can read, a length that is counted there. "
    "`.cpu()`, `.to('cpu')`, `.to(torch.device('cpu'))` and `map_location` of the CPU stay.",
    example_before="lengths.to(accelerator.device)",
    example_after="lengths.to(torch.device('cpu'))",
    find=find,
)
