"""The rules as a reader meets them: their codes, and what `--explain` tells about each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from accel_migrate.errors import MigrateError
from accel_migrate.selection import unknown


class Explained(Protocol):
    """What a rule says about itself."""

    @property
    def code(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def why(self) -> str: ...
    @property
    def example_before(self) -> str: ...
    @property
    def example_after(self) -> str: ...
    @property
    def safety(self) -> str: ...


def rules() -> tuple[Explained, ...]:
    from accel_migrate.rules import RULES

    return RULES


def known_codes() -> tuple[str, ...]:
    return tuple(rule.code for rule in rules())


def explain(code: str) -> str:
    """What a rule does, why, an example and how far to trust it; `all` tells every rule."""
    told = rules()
    if code.lower() != "all":
        told = tuple(rule for rule in told if rule.code == code.upper())
        if not told:
            raise MigrateError(unknown("rule", code.upper(), (*known_codes(), "all")))
    return "\n\n".join("\n".join(_page(rule)) for rule in told) + "\n"


def _page(rule: Explained) -> Iterator[str]:
    yield f"{rule.code} {rule.name} ({rule.safety})"
    yield f"  {rule.summary}"
    for title, text in (("Why", rule.why), ("Before", rule.example_before), ("After", rule.example_after)):
        if text.strip():
            yield ""
            yield title
            yield from (f"  {line}".rstrip() for line in text.strip("\n").splitlines())
