"""Reads [tool.accel-migrate] of the nearest pyproject.toml; a key or a value that does not exist is an error."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from accel_migrate.errors import MigrateError
from accel_migrate.options import FORMATS, PRECISIONS, PRINTS, TARGETS
from accel_migrate.selection import unknown

CHOICES = {"target": TARGETS, "mixed-precision": PRECISIONS, "prints": PRINTS, "output-format": FORMATS}
FLAGS = ("keep-device", "unsafe-fixes")
LISTS = ("select", "ignore", "exclude")
NUMBERS = ("jobs", "time-limit")
KEYS = (*CHOICES, *FLAGS, *LISTS, *NUMBERS)


def configuration(start: Path) -> dict[str, Any]:
    """The table that governs `start`, by option name; empty when no pyproject.toml above it has one."""
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            table = _table(file)
            if table is not None:
                return {key.replace("-", "_"): _checked(file, key, value) for key, value in table.items()}
    return {}


def _table(file: Path) -> dict[str, Any] | None:
    try:
        tool = tomllib.loads(file.read_text("utf-8")).get("tool", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise MigrateError(f"{file} cannot be read as TOML ({error}); fix it or run elsewhere") from error
    table = tool.get("accel-migrate")
    if table is not None and not isinstance(table, dict):
        raise MigrateError(f"{file}: tool.accel-migrate is not a table; write [tool.accel-migrate]")
    return table


def _checked(file: Path, key: str, value: Any) -> Any:
    where = f"{file}: [tool.accel-migrate] {key}"
    if key not in KEYS:
        raise MigrateError(f"{file}: [tool.accel-migrate]: {unknown('setting', key, KEYS)}")
    if key in CHOICES and value not in CHOICES[key]:
        raise MigrateError(f"{where} is {value!r}; it is one of {', '.join(CHOICES[key])}")
    if key in FLAGS and not isinstance(value, bool):
        raise MigrateError(f"{where} is {value!r}; it is true or false")
    if key in NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float) or value <= 0):
        raise MigrateError(f"{where} is {value!r}; it is a number above 0")
    if key in LISTS:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise MigrateError(f"{where} is {value!r}; it is a list of strings")
        return tuple(value)
    return value
