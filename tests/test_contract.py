"""The contract of the two packages: whatever the codemod writes into a script exists in the runtime."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from accel_migrate import emit
from accel_migrate.emit import EMITTED
from accel_migrate.rules import RULES
from accel_runtime import Accelerator

from tests.cases import FIXTURES

CODEMOD = Path(emit.__file__).parent
RESULTS = [*sorted(FIXTURES.glob("*/after.py")), *sorted(FIXTURES.glob("*/after/**/*.py"))]


def programs() -> Iterator[ast.Module]:
    """Every script that the codemod is known to write, and what its rules promise."""
    yield from (ast.parse(path.read_bytes()) for path in RESULTS)
    for rule in RULES:
        try:
            yield ast.parse(rule.example_after)
        except SyntaxError:
            continue  # an example may be part of a statement


def calls_of_the_accelerator() -> Iterator[tuple[str, ast.Call]]:
    for program in programs():
        for node in ast.walk(program):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = ast.unparse(node.func.value)
                if owner in ("accelerator", "self.accelerator"):
                    yield node.func.attr, node


def written_by_rules() -> Iterator[tuple[str, str]]:
    """The attributes in templates such as `f"{spelled}.backward("`, with the file that holds them."""
    for path in sorted(CODEMOD.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                for value, text in zip(node.values, node.values[1:]):
                    is_accelerator = re.search(r"spelled|accelerator", ast.unparse(value))
                    if is_accelerator and isinstance(text, ast.Constant) and (name := re.match(r"\.(\w+)", text.value)):
                        yield name[1], path.name


@pytest.mark.parametrize("name", EMITTED)
def test_runtime_has_every_name_that_is_emitted(name: str) -> None:
    assert hasattr(Accelerator, name)


def test_rules_emit_only_names_that_are_listed() -> None:
    written = dict(written_by_rules())
    assert {"backward", "print", "device"} <= set(written), "the templates of the rules were not found"
    assert not {name: place for name, place in written.items() if name not in EMITTED}


def test_runtime_takes_the_calls_that_are_emitted() -> None:
    calls = list(calls_of_the_accelerator())
    assert {"prepare", "backward"} <= {name for name, _ in calls}
    for name, call in calls:
        assert name in EMITTED
        keywords = {keyword.arg: None for keyword in call.keywords if keyword.arg}
        inspect.signature(getattr(Accelerator, name)).bind(None, *call.args, **keywords)


def test_constructor_takes_the_arguments_that_are_emitted() -> None:
    emitted = set(re.findall(r'f[\'"](\w+)=', Path(emit.__file__).read_text()))
    assert {"cpu", "mixed_precision"} <= emitted
    for program in programs():
        for node in ast.walk(program):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Accelerator":
                emitted |= {keyword.arg for keyword in node.keywords if keyword.arg}
    assert emitted <= set(inspect.signature(Accelerator).parameters)
