"""Settings that can be shown as keyword arguments."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


class KwargsHandler:
    """A dataclass that says what was set."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Every setting."""
        return {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]

    def to_kwargs(self) -> dict[str, Any]:
        """The settings that differ from the default."""
        usual = type(self)().to_dict()
        return {name: value for name, value in self.to_dict().items() if value != usual[name]}
