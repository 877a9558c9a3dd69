"""Writes docs/runtime/accelerate-examples.md from what benchmarks/drop_in found."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

PAGE = Path(__file__).parent / "runtime" / "accelerate-examples.md"
BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "drop_in"
EQUAL = re.compile(
    r"(\d+) losses equal (?:to the bit|within (\S+)), \d+ figures equal(, held still)?(, as if never stopped)?"
)
REFUSED = "refused: "
INTRODUCTION = """\
# Accelerate's examples

`benchmarks/drop_in` runs Accelerate's 20 examples and the 16 `run_*_no_trainer.py` of transformers on Accelerate 1.15.0 and
with only the import swapped here, on data and tiny models that it makes itself. Where a script as published does not run on
Accelerate and today's libraries, `cases.py` has what is replaced on both sides. This page is made from the results by
`make docs`.

A number is how many losses a run had, all equal to Accelerate's: to the bit on one process, within 1e-5 on two. The figures
that the script prints are equal too, and on one process the weights at the end. Scripts that can resume have four runs: whole
with a checkpoint at a step, resumed from it, whole with a checkpoint at each epoch, resumed from the first.

- `=`: what the script draws at random was held still on both sides. On two processes it always is.
- `+`: the resumed run went on as ours would have without the stop, to the bit.
"""


def page() -> str:
    """The whole page."""
    cases = runpy.run_path(str(BENCHMARK / "cases.py"))
    names = [case.name for case in (*cases["EXAMPLES"], *cases["SCRIPTS"])]
    found: dict[tuple[str, int], list[str]] = {}
    for row in json.loads((BENCHMARK / "results.json").read_text()):
        found.setdefault((row["script"], row["processes"]), []).append(row["outcome"])
    counted = [_counted(count, [found.get((name, count), []) for name in names]) for count in (1, 2)]
    cells = [(name, *(_cell(found.get((name, count), [])) for count in (1, 2))) for name in names]
    table = "".join(f"| {' | '.join(row)} |\n" for row in cells)
    return f"{INTRODUCTION}\n{' '.join(counted)}\n\n| script | one process | two processes |\n|---|---|---|\n{table}"


def _counted(count: int, found: list[list[str]]) -> str:
    run = [outcomes for outcomes in found if outcomes]
    equal = sum(all(EQUAL.fullmatch(outcome) for outcome in outcomes) for outcomes in run)
    refused = sum(all(outcome.startswith(REFUSED) for outcome in outcomes) for outcomes in run)
    return (
        f"On {'one process' if count == 1 else 'two processes'} {len(run)} of {len(found)} scripts were compared: {equal} equal, "
        f"{refused} refused with a reason, {len(run) - equal - refused} otherwise."
    )


def _cell(outcomes: list[str]) -> str:
    return ", ".join(map(_shown, outcomes)) or "not compared yet"


def _shown(outcome: str) -> str:
    equal = EQUAL.fullmatch(outcome)
    if equal is None:
        return outcome.replace("|", "\\|")
    losses, far, still, goes_on = equal.groups()
    return f"{losses}{' =' if still else ''}{' +' if goes_on else ''}{f' (within {far})' if far else ''}"


if __name__ == "__main__":
    PAGE.write_text(page())
