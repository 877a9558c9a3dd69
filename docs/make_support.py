"""Writes support.md from the runtime's own tables: `make docs`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from accel_runtime.resolve import PRECISIONS
from accel_runtime.support import DEVICES, Cell, Standing, cell, cells, strategies

HERE = Path(__file__).parent

OPENING = """\
# What goes together

Every strategy in every precision on every device. `tested` means that the tests of this project train so: on the CPU
with `make test`, on one XLA device, which its runtime makes of the CPU, with `make test-xla`. No other hardware was at
hand: there the same code runs through torch's common interface, and nobody here has seen it run. A number means that it
is refused, with the reason below. `accel env` prints the same for your version. This page is made by `make docs`.

`single` is one process. Strategies are chosen by `--strategy` or `Accelerator`'s plugins, precisions by
`--mixed-precision`, and the device is what the machine has.
"""

CLOSING = """\
Tensor, sequence, context and pipeline parallelism are not here. Asking for them is an error that says what to use.
"""


def page() -> str:
    """The whole text of support.md."""
    reasons = list(dict.fromkeys(one.reason for one in cells() if one.reason))
    return "\n".join([OPENING, *_table(reasons), "", *_notes(reasons), "", CLOSING])


def _table(reasons: list[str]) -> Iterator[str]:
    yield f"| device | | {' | '.join(PRECISIONS)} |"
    yield "| --- | --- |" + " --- |" * len(PRECISIONS)
    for device, maker in DEVICES.items():
        for strategy in strategies():
            row = [_word(cell(strategy, precision, device), reasons) for precision in PRECISIONS]
            yield f"| `{device}` ({maker}) | {strategy} | {' | '.join(row)} |"


def _word(one: Cell, reasons: list[str]) -> str:
    words = {Standing.TESTED: "tested", Standing.UNTESTED: "untested", Standing.REFUSED: "refused"}
    return f"{words[one.standing]} ({reasons.index(one.reason) + 1})" if one.reason else words[one.standing]


def _notes(reasons: list[str]) -> Iterator[str]:
    yield from (f"{number}. {reason}." for number, reason in enumerate(reasons, start=1))


if __name__ == "__main__":
    (HERE / "support.md").write_text(page())
