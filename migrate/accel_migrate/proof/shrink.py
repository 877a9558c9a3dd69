"""`--shrink image_size=32`: a smaller number for a constant of the project, in every copy that is run."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from accel_migrate.errors import MigrateError

FORM = re.compile(r"(?P<name>[^\W\d]\w*)=(?P<value>\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Cut:
    """A constant, and the number that takes the place of its own."""

    name: str
    value: str

    @property
    def told(self) -> str:
        return f"cut to {self.value}"


def parse(text: str) -> Cut:
    """`NAME=NUMBER`."""
    found = FORM.fullmatch(text)
    if found is None:
        raise MigrateError(f"--shrink {text}: say which constant gets which number, such as image_size=32")
    return Cut(found["name"], found["value"])


def shrink(cut: Cut, copy: Path) -> None:
    """Set the constant in all files of a copy; the lines stay where they are."""
    found = False
    for folder, _, names in os.walk(copy):
        for file in (Path(folder, name) for name in names if name.endswith(".py")):
            data = file.read_bytes()
            places = list(_places(data, cut.name)) if cut.name.encode() in data else []
            if places:
                file.write_bytes(_replaced(data, places, cut.value))
                found = True
    if not found:
        raise MigrateError(f"--shrink {cut.name}: no file of the project sets {cut.name} to a number")


def _places(data: bytes, name: str) -> Iterator[ast.Constant]:
    """The numbers that a file or a class of it assigns to a name, or a dictionary has under it."""
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError):
        return
    bodies = [tree.body, *[node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]]
    for statement in [statement for body in bodies for statement in body]:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            yield from _assigned(statement.targets[0], statement.value, name)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield from _assigned(statement.target, statement.value, name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values):
                if isinstance(key, ast.Constant) and key.value == name:
                    yield from _number(value)


def _assigned(target: ast.expr, value: ast.expr, name: str) -> Iterator[ast.Constant]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for each, part in zip(target.elts, value.elts):
            yield from _assigned(each, part, name)
    elif isinstance(target, ast.Name) and target.id == name:
        yield from _number(value)


def _number(value: ast.expr) -> Iterator[ast.Constant]:
    if isinstance(value, ast.Constant) and type(value.value) in (int, float):
        yield value


def _replaced(data: bytes, places: list[ast.Constant], value: str) -> bytes:
    lines = data.splitlines(keepends=True)
    for place in sorted(places, key=lambda each: (each.lineno, each.col_offset), reverse=True):
        line = lines[place.lineno - 1]
        lines[place.lineno - 1] = line[: place.col_offset] + value.encode() + line[place.end_col_offset :]
    return b"".join(lines)
