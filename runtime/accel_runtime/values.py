"""One value against the type of its key: converted from what YAML, flags and the environment make of it, or refused."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from accel_runtime.errors import ConfigError
from accel_runtime.nearest import nearest

_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text", tuple: "a list of names"}


def converted(value: Any, kind: Any, place: str) -> Any:
    """The value as its key wants it; a refusal begins with `place`, where it was written."""
    try:
        return msgspec.convert(_as_meant(value, kind), kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{place} is {value!r}, expected {_expected(kind, value, str(error))}") from None


def choices_of(kind: Any) -> tuple[Any, ...]:
    """The words (or numbers) that a key allows; empty when it is free."""
    parts = [kind, *get_args(kind)]
    return next((get_args(part) for part in parts if get_origin(part) is Literal), ())


def plain_type(kind: Any) -> type:
    """`int` for an annotated or optional int: the type to show and to parse text with."""
    if get_origin(kind) is Annotated:
        return plain_type(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return plain_type(next(part for part in get_args(kind) if part is not type(None)))
    if get_origin(kind) is Literal:
        return type(get_args(kind)[0])
    plain: type = get_origin(kind) or kind
    return plain


def as_text(value: Any) -> str:
    """As one writes it in a flag or a variable."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _as_meant(value: Any, kind: Any) -> Any:
    """What the writer meant, where the notation says something else."""
    plain = plain_type(kind)
    # YAML reads an unquoted `no` as false.
    if value is False and "no" in choices_of(kind):
        return "no"
    if plain is tuple and isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if plain is str and isinstance(value, list):
        return ",".join(str(part) for part in value)
    if plain is str and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


def _expected(kind: Any, value: Any, error: str) -> str:
    if choices := choices_of(kind):
        words = [str(choice) for choice in choices]
        return f"one of {', '.join(words)}{nearest(str(value), words)}"
    # msgspec says what is out of range as "Expected `int` >= 1"; of what is no number at all, only the type.
    limit = error.removeprefix("Expected `").partition("` ")[2] if ">" in error or "<" in error else ""
    pattern = "such as 2 or 1:4" if "regex" in error else ""
    return f"{_NAMES[plain_type(kind)]} {limit or pattern}".rstrip()
