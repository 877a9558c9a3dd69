"""A blank line between two changed lines is not a change, also in a text that is long enough for difflib to skip it."""

from __future__ import annotations

import difflib

from accel_migrate.matched_lines import MatchedLines

PADDING = [line for number in range(150) for line in (f"line {number}", "")]


def unchanged(steps: list[tuple[str, int, int, int, int]]) -> int:
    return sum(end - start for kind, start, end, _, _ in steps if kind == "equal")


def test_frequent_lines_are_matched_inside_a_changed_block() -> None:
    before = [*PADDING, "x = x.cuda()", "", "with autocast():", *PADDING]
    after = [*PADDING, "x = x.half()", "", "with accelerator.autocast():", *PADDING]
    assert unchanged(difflib.SequenceMatcher(None, before, after).get_opcodes()) == len(before) - 3
    assert unchanged(MatchedLines(before, after).get_opcodes()) == len(before) - 2


def test_the_steps_lead_from_one_text_to_the_other() -> None:
    before = [*PADDING, "a", "", "b", "", "c"]
    after = ["", "b", *PADDING, "d", "", "b", "e", ""]
    rebuilt = [line for _, _, _, start, end in MatchedLines(before, after).get_opcodes() for line in after[start:end]]
    kept = [
        (before[a:b], after[c:d]) for kind, a, b, c, d in MatchedLines(before, after).get_opcodes() if kind == "equal"
    ]
    assert rebuilt == after
    assert all(left == right for left, right in kept)
