"""`--observe`: one run of the script as it is, to see what its variables hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from accel_migrate.document import document
from accel_migrate.errors import MigrateError
from accel_migrate.facts import Fact, Facts, Place, digest
from accel_migrate.proof import failures
from accel_migrate.proof.prove import Tell
from accel_migrate.proof.runs import Runner
from accel_migrate.proof.subject import Wanted, runnable, target_of


def observe(wanted: Wanted, runner: Runner, tell: Tell) -> Facts:
    """What the variables of the project held while the script trained."""
    root = runner.project.root
    script = wanted.script
    notebook = script if script is not None and script.suffix == ".ipynb" else None
    programs: dict[Path, bytes] = {}
    if notebook is not None:
        programs[runnable(notebook)] = document(notebook, notebook.read_bytes()).source.data
    tell("running the original, to see what its variables hold")
    run = runner.run("observed", target_of(wanted, runner.project), programs, observe=True)
    if run.failed:
        raise MigrateError(f"nothing was observed: the original {failures.sentence(run)}")
    if not any(trace.losses for trace in run.traces):
        raise MigrateError("nothing was observed: the original reached no backward pass")
    written = runner.scratch / "observed" / "journal" / "facts.json"
    named = {runnable(notebook): notebook} if notebook is not None else {}
    facts = tuple(_fact(told, root, named) for told in json.loads(written.read_bytes()))
    files = {fact.place.file for fact in facts}
    ran = {path: programs.get(runnable(path)) or path.read_bytes() for path in files}
    return Facts(facts, {path: digest(data) for path, data in ran.items()})


def _fact(told: Mapping[str, object], root: Path, named: Mapping[Path, Path]) -> Fact:
    def place(it: tuple[str, int, str]) -> Place:
        file = root / it[0]
        return Place(named.get(file, file), it[1], it[2])

    over, same = (tuple(map(place, told[each])) for each in ("over", "same"))  # type: ignore[call-overload]
    return Fact(place(told["place"]), str(told["kind"]), int(str(told["times"])), over, same)  # type: ignore[arg-type]
