"""What a rule is: its texts for people, and the function that finds what it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from accel_migrate.plan import Change, Safety
from accel_migrate.settings import Settings

if TYPE_CHECKING:
    from accel_migrate.analysis.trainings.training import Script, Training
    from accel_migrate.flow.scopes import Module


@dataclass(frozen=True)
class Context:
    """One file of one training, as a rule sees it."""

    script: Script
    training: Training
    module: Module
    settings: Settings


@dataclass(frozen=True)
class Rule:
    """A pattern that the codemod knows, with its code and its documented safety."""

    code: str
    summary: str
    why: str
    example_before: str
    find: Callable[[Context], Iterator[Change]] = field(repr=False)
    safety: Safety = Safety.SAFE
    example_after: str = ""

    def __post_init__(self) -> None:
        if self.safety is Safety.NOTE:  # it edits nothing
            object.__setattr__(self, "example_after", self.example_after or self.example_before)

    @property
    def name(self) -> str:
        """A rule is named after its file."""
        return self.find.__module__.rpartition(".")[2]
