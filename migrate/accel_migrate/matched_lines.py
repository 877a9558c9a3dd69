"""Which lines two texts share."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import TypeVar

Line = TypeVar("Line", bound=str | bytes)
Step = tuple[str, int, int, int, int]


class MatchedLines(difflib.SequenceMatcher[Line]):
    """A matcher that also knows empty and other frequent lines again, inside of what changed.

    The standard one leaves them out of long texts, because matching them everywhere takes quadratic time; without them a
    blank line between two changed ones counts as changed.
    """

    def __init__(self, before: Sequence[Line], after: Sequence[Line]) -> None:
        super().__init__(None, before, after)
        self.before, self.after = before, after

    def get_opcodes(self) -> list[Step]:  # type: ignore[override]
        return [inner for step in super().get_opcodes() for inner in self._inside(step)]

    def _inside(self, step: Step) -> Iterator[Step]:
        kind, start, end, new_start, new_end = step
        if kind != "replace":
            yield step
            return
        block = difflib.SequenceMatcher(None, self.before[start:end], self.after[new_start:new_end], autojunk=False)
        for kind, first, last, new_first, new_last in block.get_opcodes():
            yield kind, start + first, start + last, new_start + new_first, new_start + new_last
