"""A text before and after as rows of two lines that face each other."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from accel_migrate.matched_lines import MatchedLines
from accel_migrate.report.highlight import Span

SHORTEST_FOLD = 3
WORD = re.compile(r"\w+|\s+|.")


@dataclass(frozen=True, slots=True)
class Row:
    """Line numbers from 1; None where the other side has no partner. Marks are the characters that differ."""

    left: int | None
    right: int | None
    left_marks: tuple[Span, ...] = ()
    right_marks: tuple[Span, ...] = ()

    @property
    def changed(self) -> bool:
        return self.left is None or self.right is None or bool(self.left_marks or self.right_marks)


def rows(before: Sequence[str], after: Sequence[str]) -> Iterator[Row]:
    for kind, start, end, new_start, new_end in MatchedLines(before, after).get_opcodes():
        if kind == "equal":
            yield from (Row(start + step + 1, new_start + step + 1) for step in range(end - start))
        else:
            yield from _block(before, after, range(start, end), range(new_start, new_end))


def _block(before: Sequence[str], after: Sequence[str], old: range, new: range) -> Iterator[Row]:
    """Lines of a changed block: those that resemble each other share a row, in order."""
    waiting = list(new)
    for left in old:
        partner = next((right for right in waiting if _alike(before[left], after[right])), None)
        if partner is None:
            yield Row(left + 1, None)
            continue
        yield from (Row(None, right + 1) for right in waiting if right < partner)
        waiting = [right for right in waiting if right > partner]
        yield Row(left + 1, partner + 1, *_marks(before[left], after[partner]))
    yield from (Row(None, right + 1) for right in waiting)


def _alike(old: str, new: str) -> bool:
    return difflib.SequenceMatcher(None, old.strip(), new.strip(), autojunk=False).ratio() > 0.5


def _marks(old: str, new: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Whole words: single letters that two words share by chance only confuse the eye."""
    words, new_words = WORD.findall(old), WORD.findall(new)
    places, new_places = (list(accumulate(map(len, each), initial=0)) for each in (words, new_words))
    steps = difflib.SequenceMatcher(None, words, new_words, autojunk=False).get_opcodes()
    changed = [step for step in steps if step[0] != "equal"]
    return (
        tuple((places[start], places[end]) for _, start, end, _, _ in changed if start < end),
        tuple((new_places[start], new_places[end]) for _, _, _, start, end in changed if start < end),
    )


def folded(all_rows: Sequence[Row], interesting: set[int], context: int = 3) -> Iterator[list[Row]]:
    """Runs of rows to show and to fold away in turn, beginning with one to show; `interesting` are left lines."""
    near = [False] * len(all_rows)
    for index, row in enumerate(all_rows):
        if row.changed or row.left in interesting:
            for place in range(max(index - context, 0), min(index + context + 1, len(all_rows))):
                near[place] = True
    _fill_short_gaps(near)
    run: list[Row] = []
    showing = True
    for row, is_near in zip(all_rows, near, strict=True):
        if is_near != showing:
            yield run
            run, showing = [], is_near
        run.append(row)
    yield run


def _fill_short_gaps(near: list[bool]) -> None:
    """A fold of a few lines saves nothing and is in the way."""
    start = 0
    for is_near, group in groupby(list(near)):
        length = len(list(group))
        if not is_near and length <= SHORTEST_FOLD:
            near[start : start + length] = [True] * length
        start += length
