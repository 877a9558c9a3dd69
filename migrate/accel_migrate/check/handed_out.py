"""Functions that are handed to code outside of the project, which may call them any number of times."""

from __future__ import annotations

import ast

from accel_migrate.check.evidence import Side
from accel_migrate.flow.nodes import called_name
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module

# What runs a function that it is handed once: command lines, starters of processes and threads, profilers.
_RUNS_ONCE = frozenset(
    [
        *(
            "Fire",
            "cli",
            "CLI",
            "set_defaults",
            "add_command",
            "register",
            "signal",
            "submit",
            "runcall",
            "LineProfiler",
        ),
        *("notebook_launcher", "debug_launcher", "elastic_launch", "spawn", "start_processes", "Process", "Thread"),
    ]
)
_RUNNERS = frozenset(
    ["app", "typer", "asyncio"]
)  # `app.run(main)`; that of a search, `tune.run(train)`, is not one of them
# What gets a function, and does not call it.
_CALLS_NOTHING = frozenset(["partial", "print", "callable", "isinstance", "signature", "getsource", "wraps", "hasattr"])
# What keeps a function for those of the project that call it by what they read.
_KEEPS = frozenset(["append", "add", "update", "setdefault", "dict", "list", "tuple", "zip", "setattr"])


class HandedOut:
    """Which functions of a project are given to calls that no function of the project answers."""

    def __init__(self, side: Side) -> None:
        self._to: dict[Function, tuple[Module, ast.Call]] = {}
        harmless = _RUNS_ONCE | _CALLS_NOTHING | _KEEPS
        for file, call in side.calls:
            name = called_name(call)
            runs = name == "run" and getattr(getattr(call.func, "value", None), "id", "") in _RUNNERS
            if name in harmless or runs or side.flows.callees.get(call):
                continue
            for argument in (*call.args, *[keyword.value for keyword in call.keywords]):
                for function in callables(side, file, argument):
                    self._to.setdefault(function, (file, call))

    def to(self, function: Function) -> tuple[Module, ast.Call] | None:
        """The call that a function is handed to, if it is not known to run it once."""
        return self._to.get(function)


def callables(side: Side, file: Module, node: ast.expr) -> list[Function]:
    """The functions that an argument may be: its own, a method, an object with `__call__`, or parts of a list of them."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    made = [each for part in parts for each in side.flows.made(file, part)]
    functions = [each.node for each in made if each.kind == "function"]
    functions += [
        method
        for each in made
        if each.kind == "instance" and isinstance(each.node, ast.ClassDef)
        for method in each.node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__call__"
    ]
    return [function for function in functions if isinstance(function, Function)]
