"""Runs a case on both sides, and says in one line what is equal."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from accel_runtime.unsupported import NAMES
from cases import Case
from running import Order, Run, run

# On several processes gradients are summed in an order that the network chooses.
TOLERANCE = 1e-5
RESUMED = "from"
GOES_ON = ", as if never stopped"
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")


@dataclass(frozen=True)
class Sides:
    """A case with the text of its script for Accelerate and for this runtime."""

    folder: Path
    case: Case
    theirs: str
    ours: str
    beside: list[Path]
    version: str


def compared(sides: Sides, processes: int) -> Iterator[tuple[str, str]]:
    """Each run with its outcome; an outcome that begins with ! is a difference that nothing explains."""
    outcomes = _outcomes(sides, processes, processes > 1, sides.case.runs)
    differing = [name for name, outcome in outcomes.items() if outcome.startswith("!losses")]
    if processes == 1 and differing:
        # Accelerate reads a batch ahead, so that what is drawn for a batch mixes otherwise with what dropout draws, and
        # shuffles anew when it resumes.
        names = list(sides.case.runs)
        again = {names[names.index(name) - 1] for name in differing if name.startswith(RESUMED)}.union(differing)
        chosen = {name: sides.case.runs[name] for name in names if name in again}
        held = _outcomes(sides, processes, True, chosen)
        for name in differing:
            outcomes[name] = f"{held[name]}, held still{GOES_ON if GOES_ON in outcomes[name] else ''}"
    yield from outcomes.items()


def _outcomes(sides: Sides, processes: int, still: bool, runs: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    outcomes: dict[str, str] = {}
    whole = Run()
    for name, arguments in runs.items():
        theirs = _theirs(sides, name, arguments, processes, still)
        ours = _run(sides, "ours", arguments, processes, still)
        outcomes[name] = _outcome(theirs, ours, processes)
        if not name.startswith(RESUMED):
            whole = ours
        elif not still and ours.losses and whole.losses[0][-len(ours.losses[0]) :] == ours.losses[0]:
            outcomes[name] += GOES_ON
    return outcomes


def _theirs(sides: Sides, name: str, arguments: tuple[str, ...], processes: int, still: bool) -> Run:
    """From an earlier time if nothing changed: the file beside which its checkpoints are."""
    key = hashlib.sha256(repr((sides.theirs, arguments, sides.version, sides.case.environment)).encode()).hexdigest()
    place = _place(sides, "theirs", processes, still)
    stored = place / f"{name}-{key[:16]}.json"
    if not stored.exists():
        found = _run(sides, "theirs", arguments, processes, still)
        stored.write_text(found.to_json())
    return Run.from_json(stored.read_text())


def _run(sides: Sides, side: str, arguments: tuple[str, ...], processes: int, still: bool) -> Run:
    place = _place(sides, side, processes, still)
    for shared in (sides.folder / "hub").iterdir():
        if not (place / shared.name).exists():
            (place / shared.name).symlink_to(shared)
    for file in sides.beside:
        shutil.copy(file, place)
    (place / "script.py").write_text(sides.theirs if side == "theirs" else sides.ours)
    return run(Order(place / "script.py", arguments, sides.case.environment, processes, still))


def _place(sides: Sides, side: str, processes: int, still: bool) -> Path:
    place = sides.folder / sides.case.name / f"{side}{processes}{'still' if still else ''}"
    place.mkdir(parents=True, exist_ok=True)
    return place


def _outcome(theirs: Run, ours: Run, processes: int) -> str:
    if theirs.failure:
        return f"Accelerate fails: {theirs.failure}; " + (
            f"so it does here: {ours.failure}" if ours.failure else "runs here"
        )
    if ours.failure:
        reason = next((text for text in NAMES.values() if text in ours.failure), "")
        return f"refused: {reason}" if reason else f"!fails here: {ours.failure}"
    counts = [tuple(map(len, side.losses)) for side in (theirs, ours)]
    if counts[0] != counts[1]:
        return f"!steps differ: {counts[0]} and {counts[1]}"
    pairs = [(a, b) for one, other in zip(theirs.losses, ours.losses) for a, b in zip(one, other)]
    far = max((abs(a - b) / max(abs(a), 1e-12) for a, b in pairs), default=0.0)
    unlike = sum(a != b for a, b in pairs)
    if far > (0 if processes == 1 else TOLERANCE):
        return f"!losses differ: {unlike} of {len(pairs)}, by up to {far:.1e}"
    equal = f"{len(pairs)} losses equal" + (f" within {far:.1e}" if far else " to the bit")
    if processes == 1 and theirs.weights != ours.weights:
        return f"!{equal}, weights differ"
    if not _alike(theirs.printed, ours.printed):
        return f"!{equal}, figures differ: {_first_unlike(theirs.printed, ours.printed)}"
    return f"{equal}, {len(theirs.printed)} figures equal"


def _alike(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    if [NUMBER.sub("0", text) for text in one] != [NUMBER.sub("0", text) for text in other]:
        return False
    numbers = [[float(number) for text in side for number in NUMBER.findall(text)] for side in (one, other)]
    return all(abs(a - b) <= TOLERANCE * max(abs(a), abs(b)) for a, b in zip(*numbers))


def _first_unlike(one: tuple[str, ...], other: tuple[str, ...]) -> str:
    pairs = [(a, b) for a, b in zip(one, other) if a != b]
    return f"{len(one)} and {len(other)}" if not pairs else f"{pairs[0][0][:90]} | {pairs[0][1][:90]}"
