"""Writes support.md from the runtime's own tables: `make docs`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from accel_runtime.resolve import PRECISIONS
from accel_runtime.support import DEVICES, Cell, Standing, cell, cells, strategies

HERE = Path(__file__).parent

OPENING = """\
# What goes together

Every strategy in every precision on every device. `tested` means that the tests of this project train so: on the CPU
with `make test`, on one XLA device, which its runtime makes of the CPU, with `make test-xla`. No other hardware was at
hand: there the same code runs through torch's common interface, and nobody here has seen it run. A number means that it
is refused, with the reason below. `accel env --support` prints the same for your version. This page is made by `make docs`.

`single` is one process. Strategies are chosen by `--strategy` or `Accelerator`'s plugins, precisions by
`--mixed-precision`, and the device is what the machine has.
"""

CLOSING = """\
## Systems and versions

All this is tested on Linux with Python 3.11 and torch 2.13.

- Python 3.13.0 with torch 2.15.0, the newest torch, in the environment of `make test-python PYTHON=python3.13 TORCH=2.15.0`:
  the runtime's 956 tests pass. Of the tests in `tests/distributed` 29 were run there, with an earlier runtime, and passed; 12
  were skipped (DeepSpeed and Accelerate were not installed), three ended at a time limit or in their set-up on a busy machine and
  were not repeated, and the others have not been run.
- Python 3.12 and 3.13: the codemod migrates every case under `fixtures/` to the letter on both, without torch (134 tests). The
  runtime's tests of options, ranks and the names that the codemod writes pass on 3.12 with torch 2.15.0 (57); its others have
  not been run there. The workflow `tests.yml` runs both and has not run yet.
- torch 2.6.0, the lowest that is allowed, with `make test-torch TORCH=2.6.0`: of the runtime's 956 tests 947 pass. FSDP on the
  CPU needs a newer torch (4 fail), and so does torchao 0.18 (1). Steps in bf16 with accumulation make a call in four more than is
  allowed (4).
- macOS and Windows: the workflow migrates a script there. The runtime has not been run there. It expects gloo between
  processes. On Windows the launcher of one process waits for it instead of becoming it, and shows no line of progress.

Tensor, sequence, context and pipeline parallelism are not here. Asking for them is an error that says what to use.
"""


def page() -> str:
    """The whole text of support.md."""
    reasons = list(dict.fromkeys(one.reason for one in cells() if one.reason))
    makers = "; ".join(f"`{device}`: {maker}" for device, maker in DEVICES.items())
    return "\n".join([OPENING, *_table(reasons), "", *_notes(reasons), "", f"{makers}.", "", CLOSING])


def _table(reasons: list[str]) -> Iterator[str]:
    yield f"| devices | | {' | '.join(PRECISIONS)} |"
    yield "| --- | --- |" + " --- |" * len(PRECISIONS)
    for devices in _alike():
        for strategy in strategies():
            row = [_word(cell(strategy, precision, devices[0]), reasons) for precision in PRECISIONS]
            yield f"| {', '.join(f'`{device}`' for device in devices)} | {strategy} | {' | '.join(row)} |"


def _alike() -> list[list[str]]:
    """The devices, those of which all the same is true together."""
    by_standing: dict[tuple[str, ...], list[str]] = {}
    for device, its_cells in groupby(cells(), key=lambda one: one.device):
        by_standing.setdefault(tuple(map(str, its_cells)), []).append(device)
    return list(by_standing.values())


def _word(one: Cell, reasons: list[str]) -> str:
    words = {Standing.TESTED: "tested", Standing.UNTESTED: "untested", Standing.REFUSED: "refused"}
    return f"{words[one.standing]} ({reasons.index(one.reason) + 1})" if one.reason else words[one.standing]


def _notes(reasons: list[str]) -> Iterator[str]:
    yield from (f"{number}. {reason[0].upper()}{reason[1:]}." for number, reason in enumerate(reasons, start=1))


if __name__ == "__main__":
    (HERE / "support.md").write_text(page())
