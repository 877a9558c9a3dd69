"""What goes together: each combination of strategy, precision and device is tested, untested or refused with a reason.

Made from the tables by which `resolve.py` chooses and refuses. `accel env` and docs/support.md show it, a test walks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from accel_runtime.refusals import refusal
from accel_runtime.resolve import PRECISIONS, STRATEGIES

DEVICES = {
    "cpu": "any CPU",
    "cuda": "NVIDIA, and AMD through ROCm",
    "xpu": "Intel",
    "npu": "Huawei Ascend",
    "hpu": "Intel Gaudi",
    "mtia": "Meta",
    "mlu": "Cambricon",
    "musa": "Moore Threads",
    "sdaa": "Tecorigin",
    "mps": "Apple",
    "tpu": "TPUs, through torch_tpu",
    "xla": "TPUs, through torch_xla",
}
# `make test` runs all that is not refused on the CPU; `make test-xla` has one device, which XLA makes of the CPU.
TESTED = {"cpu": frozenset(STRATEGIES), "xla": frozenset({"single"})}


class Standing(StrEnum):
    TESTED = "tested here"
    UNTESTED = "untested on this hardware"
    REFUSED = "refused because"


@dataclass(frozen=True, slots=True)
class Cell:
    strategy: str
    precision: str
    device: str
    standing: Standing
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.standing} {self.reason}".rstrip()


def cell(strategy: str, precision: str, device: str) -> Cell:
    if reason := refusal(strategy, precision, device):
        return Cell(strategy, precision, device, Standing.REFUSED, reason)
    tested = strategy in TESTED.get(device, ())
    return Cell(strategy, precision, device, Standing.TESTED if tested else Standing.UNTESTED)


def cells() -> Iterator[Cell]:
    """All of them; by device, then by strategy."""
    for device in DEVICES:
        for strategy in strategies():
            yield from (cell(strategy, precision, device) for precision in PRECISIONS)


def strategies() -> list[str]:
    """Those that a run can be asked for, and one process: `xla` is what ddp is on that device."""
    return [name for name in STRATEGIES if name != "xla"]


def summary() -> dict[str, str]:
    """For each strategy on each kind of device what stands how; devices of which the same is true share a line."""
    told: dict[str, dict[str, list[str]]] = {}
    for (device, strategy), row in groupby(cells(), key=lambda one: (one.device, one.strategy)):
        told.setdefault(strategy, {}).setdefault(_told(list(row)), []).append(device)
    return {
        f"{strategy} on {', '.join(devices)}": standing
        for strategy, rows in told.items()
        for standing, devices in rows.items()
    }


def _told(row: list[Cell]) -> str:
    by_standing: dict[str, list[str]] = {}
    for one in row:
        by_standing.setdefault(str(one), []).append(one.precision)
    return "; ".join(f"{', '.join(precisions)} {standing}" for standing, precisions in by_standing.items())
