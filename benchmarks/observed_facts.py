"""What one run of a script shows of its variables, beside what the code tells: over the fixtures of this repository.

    python benchmarks/observed_facts.py [--only WORD] [--steps N]

For each fixture that trains on one process: how many of the models, optimizers, loaders, schedulers and scalers that the static
analysis knows by name a run of `--observe` saw too, how many variables it saw that the code does not tell, how many it saw to
be something else (there must be none), and the same for the lines of backward passes. A run sees only what it comes by: parts
of a model that no variable holds, branches that are not taken and loops that begin after `--steps` losses are missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import astuple, dataclass
from pathlib import Path

from accel_migrate.analysis.values.loops import backward_calls
from accel_migrate.analysis.values.observed import backwards_in, observed_in
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.errors import MigrateError
from accel_migrate.facts import Facts
from accel_migrate.flow.program import Program
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.proof.observe import observe
from accel_migrate.proof.runs import Runner
from accel_migrate.proof.scratch import Project
from accel_migrate.proof.subject import Wanted
from accel_migrate.source import Source

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.cases import Case, all_cases

KINDS = {
    "model": Role.MODEL,
    "optimizer": Role.OPTIMIZER,
    "loader": Role.LOADER,
    "scheduler": Role.SCHEDULER,
    "scaler": Role.SCALER,
}
ROLES = Role.MODEL | Role.OPTIMIZER | Role.LOADER | Role.SCHEDULER | Role.SCALER


@dataclass(frozen=True)
class Count:
    """Of one fixture, or of all."""

    told: int = 0  # variables whose role the code tells
    seen: int = 0  # and a run showed too
    more: int = 0  # that a run showed and the code does not tell
    other: int = 0  # that a run showed to be something else
    passes: int = 0  # lines of backward passes
    traced: int = 0  # that a run came by

    def __add__(self, more: Count) -> Count:
        return Count(*map(sum, zip(astuple(self), astuple(more))))


def counted(case: Case, facts: Facts) -> Count:
    script = case.script("before")
    files = sorted(script.parent.rglob("*.py")) if case.is_project else [script]
    program = Program([Module(Source.from_bytes(path, path.read_bytes())) for path in files])
    roles = Roles(program)
    told = {variable for variable in roles.known if roles.of(variable) & ROLES and _is_bound(variable)}
    held = {each.variable: KINDS[each.kind] for each in observed_in(program, facts) if each.kind in KINDS}
    lines = {(each.module, each.call.lineno) for each in backward_calls(roles)}
    return Count(
        told=len(told),
        seen=sum(bool(held[each] & roles.of(each)) for each in told & held.keys()),
        more=sum(_is_bound(each) and not roles.of(each) for each in held),
        other=sum(not held[each] & roles.of(each) for each in told & held.keys()),
        passes=len(lines),
        traced=len(lines & backwards_in(program, facts).keys()),
    )


def _is_bound(variable: Variable) -> bool:
    return bool(variable.scope.module.bindings(variable))


def observed(case: Case, steps: int) -> Facts:
    script = case.script("before")
    folder = case.folder / "before" if case.is_project else case.folder
    with tempfile.TemporaryDirectory() as scratch:
        runner = Runner(Project(folder, ()), Path(scratch).resolve(), sys.executable, steps, 300, pretend_cpu=True)
        wanted = Wanted((script,), case.arguments, folder)
        return observe(wanted, runner, lambda what: None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="fixtures whose name has this word")
    parser.add_argument("--steps", type=int, default=20, help="losses after which a run is cut")
    options = parser.parse_args()
    total, without = Count(), 0
    print(f"{'fixture':38} told seen more other  passes traced")
    for case in (case for case in all_cases() if case.runs and options.only in case.name):
        try:
            count = counted(case, observed(case, options.steps))
        except MigrateError as error:
            without += 1
            print(f"{case.name:38} {str(error)[:80]}", flush=True)
            continue
        total += count
        print(f"{case.name:38} {_row(count)}", flush=True)
    print(f"{'all':38} {_row(total)}\n{without} fixtures could not be run so")


def _row(count: Count) -> str:
    return f"{count.told:4} {count.seen:4} {count.more:4} {count.other:5}  {count.passes:6} {count.traced:6}"


if __name__ == "__main__":
    main()
