"""Every code that a report may show: the rules, the conditions on results, and what the tool itself has to say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from accel_migrate.errors import MigrateError
from accel_migrate.notebook import LAUNCHER
from accel_migrate.plan import Safety
from accel_migrate.selection import unknown
from accel_migrate.suppress import UNUSED


class Explained(Protocol):
    """What a code says about itself; every Rule does."""

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
    def safety(self) -> Safety: ...


@dataclass(frozen=True)
class Remark:
    """A note that no rule makes, because it is not about the code of a training."""

    code: str
    name: str
    summary: str
    why: str
    example_before: str
    example_after: str
    safety: Safety = Safety.NOTE


REMARKS = (
    Remark(
        code=UNUSED,
        name="unused_suppression",
        summary="a comment suppresses something that is not there",
        why="A comment that no longer suppresses anything would hide the next finding on its line.",
        example_before="x = 1  # accel: ignore[AM201]",
        example_after="x = 1",
    ),
    Remark(
        code=LAUNCHER,
        name="notebook_launcher",
        summary="a notebook is one process until its training is launched",
        why="Cells run in the one process of the kernel. A launcher starts one process per device, and each runs a "
        "function that holds the training.",
        example_before="for epoch in range(epochs): ...",
        example_after="def train(): ...\n\nnotebook_launcher(train, num_processes=2)",
    ),
)


def explained() -> tuple[Explained, ...]:
    """Everything that has a code, in the order of the codes."""
    from accel_migrate.check import CONDITIONS
    from accel_migrate.rules import RULES

    return tuple(sorted((*RULES, *CONDITIONS, *REMARKS), key=lambda each: each.code))


def known_codes() -> tuple[str, ...]:
    return tuple(each.code for each in explained())


def explain(code: str) -> str:
    """What a code means, why, an example and how far to trust it; `AM1` tells all that begin so, `all` every one."""
    beginning = "" if code.lower() == "all" else code.upper()
    told = [each for each in explained() if each.code.startswith(beginning)]
    if not told:
        raise MigrateError(unknown("rule", code.upper(), (*known_codes(), "all")))
    return "\n\n".join("\n".join(_page(each)) for each in told) + "\n"


def _page(told: Explained) -> Iterator[str]:
    yield f"{told.code} {told.name} ({told.safety})"
    yield f"  {told.summary}"
    for title, text in (("Why", told.why), ("Before", told.example_before), ("After", told.example_after)):
        if text.strip():
            yield ""
            yield title
            yield from (f"  {line}".rstrip() for line in text.strip("\n").splitlines())
