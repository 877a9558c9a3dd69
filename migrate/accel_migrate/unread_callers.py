"""Files that cannot be read as Python (a magic of IPython, Python 2) and may call what a migration gave another signature."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from accel_migrate.flow.nodes import walk
from accel_migrate.outcome import Outcome
from accel_migrate.plan import Status

Function = ast.FunctionDef | ast.AsyncFunctionDef


def calls_to_check(unread: Path, outcomes: Iterable[Outcome]) -> str:
    """What to look at in a file by hand: the functions that it names and that take other arguments now; or nothing."""
    try:
        words = set(re.findall(rb"\w+", unread.read_bytes()))
    except OSError:
        return ""
    found = [
        f"{name}() of {outcome.path.name}"
        for outcome in outcomes
        if outcome.status is Status.MIGRATED and outcome.path.stem.encode() in words
        for name in _changed(outcome)
        if name.encode() in words
    ]
    return f"; it names {', '.join(found)}, which takes other arguments now: change its calls by hand" if found else ""


def _changed(outcome: Outcome) -> list[str]:
    before, after = dict(_signatures(outcome.before)), dict(_signatures(outcome.after))
    return [name for name, arguments in before.items() if after.get(name) != arguments]


def _signatures(data: bytes) -> Iterator[tuple[str, str]]:
    """The arguments of each function, by the name that a caller has for it."""
    with suppress(SyntaxError, ValueError):  # a notebook
        for node in walk(ast.parse(data)):
            if isinstance(node, Function):
                yield node.name, ast.dump(node.args)
            if isinstance(node, ast.ClassDef):
                made = [m for m in node.body if isinstance(m, Function) and m.name == "__init__"]
                yield from ((node.name, ast.dump(method.args)) for method in made)
