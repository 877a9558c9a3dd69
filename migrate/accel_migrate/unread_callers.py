"""Files that stay as they are and may call what a migration gave another signature: tests, and what is no Python as it stands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from accel_migrate.flow.nodes import walk
from accel_migrate.outcome import Decision, Finding, Outcome
from accel_migrate.plan import Safety, Status

Function = ast.FunctionDef | ast.AsyncFunctionDef
_IMPORTS = re.compile(rb"^\W*(?:from|import)\b[^\n(]*(?:\([^)]*\))?", re.M)  # also those of a notebook's cells


def calls_to_check(unread: Path, outcomes: Iterable[Outcome]) -> str:
    """What to look at in a file by hand: the functions that it names and that take other arguments now; or nothing."""
    found = [f"{name}() of {outcome.path.name}" for outcome in outcomes for name, _ in _named(unread, outcome)]
    return f"; it names {', '.join(found)}, which takes other arguments now: change its calls by hand" if found else ""


def with_tests_to_change(outcome: Outcome, tests: Iterable[Path]) -> Outcome:
    """The same outcome, with a note at each function that tests name and that takes other arguments now."""
    named: dict[tuple[str, int], list[str]] = {}
    for test in sorted(tests):
        for each in _named(test, outcome):
            named.setdefault(each, []).append(test.name)
    notes = []
    for (name, line), files in named.items():
        told = f"tests call it as it was ({', '.join(dict.fromkeys(files))}): change their calls"
        message = f"{name}() takes other arguments now, and {told}"
        notes.append(Finding("AM103", line, 1, message, Safety.NOTE, Decision.NOTE))
    return replace(outcome, findings=tuple(sorted((*outcome.findings, *notes), key=lambda each: each.line)))


def _named(caller: Path, outcome: Outcome) -> Iterator[tuple[str, int]]:
    """The functions with another signature that a file names together with the file they are in, each with its line."""
    try:
        data = caller.read_bytes()
    except OSError:
        return
    words, imported = (set(re.findall(rb"\w+", text)) for text in (data, b" ".join(_IMPORTS.findall(data))))
    if outcome.status is Status.MIGRATED and outcome.path.stem.encode() in imported:
        after = {name: arguments for name, arguments, _ in _signatures(outcome.after)}
        for name, arguments, line in _signatures(outcome.before):
            if after.get(name) != arguments and name.encode() in words:
                yield name, line


def _signatures(data: bytes) -> Iterator[tuple[str, str, int]]:
    """The arguments of each function, by the name that a caller has for it, and its line."""
    with suppress(SyntaxError, ValueError):  # a notebook
        for node in walk(ast.parse(data)):
            if isinstance(node, Function):
                yield node.name, ast.dump(node.args), node.lineno
            if isinstance(node, ast.ClassDef):
                made = [m for m in node.body if isinstance(m, Function) and m.name == "__init__"]
                yield from ((node.name, ast.dump(method.args), method.lineno) for method in made)
