"""The rules as a reader meets them: their codes, and what `--explain` tells about each."""

from __future__ import annotations

from typing import Protocol


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
    try:
        from accel_migrate.rules import RULES
    except ImportError:
        return ()
    return tuple(RULES)


def known_codes() -> tuple[str, ...]:
    return tuple(rule.code for rule in rules())
