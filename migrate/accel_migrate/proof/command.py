"""`accel-migrate --verify`: migrate in memory, prove, report, and write what was proven if that was asked for."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from accel_migrate import project
from accel_migrate.discover import discover
from accel_migrate.errors import MigrateError
from accel_migrate.facts import Facts, save
from accel_migrate.options import Options
from accel_migrate.outcome import Outcome as FileOutcome
from accel_migrate.plan import Status
from accel_migrate.present import wants_color
from accel_migrate.proof import data, made_files, page, shrink, text
from accel_migrate.proof.observe import observe
from accel_migrate.proof.prove import Proof
from accel_migrate.proof.runs import Runner, Start, start
from accel_migrate.proof.scratch import Project
from accel_migrate.proof.subject import Wanted, project_of, subject
from accel_migrate.proof.verdict import Outcome, Verdict, answer
from accel_migrate.report import FOR_PEOPLE, Report, Shown, render
from accel_migrate.run import terms_of, written
from accel_migrate.undo import Journal, state_folder
from accel_migrate.work import Terms, work
from accel_migrate.write import write_whole


def verify(options: Options, starting: Start = start) -> int:
    """Prove what was asked for, and exit with what came of it: 0 proven, 1 differs, 2 could not run."""
    if options.target == "accelerate" and options.processes > 1:
        raise MigrateError("several processes are run by accel_runtime; with --target accelerate add --processes 1")
    terms = terms_of(options)
    wanted = Wanted(options.paths, options.arguments, terms.current, options.module)
    if options.observe:
        terms = replace(terms, settings=replace(terms.settings, facts=_observed(wanted, options, starting)))
    outcomes = migrated(options.paths, options, terms)
    verdict = _verdict(wanted, outcomes, options, starting)
    if options.write_if_proven and verdict.outcome is Outcome.PROVEN:
        with Journal(state_folder()) as journal:
            outcomes = written(outcomes, journal)
        verdict = replace(verdict, written=all(outcome.status is not Status.FAILED for outcome in outcomes))
    _present(verdict, outcomes, options)
    return verdict.outcome.code


def migrated(paths: Sequence[Path], options: Options, terms: Terms) -> list[FileOutcome]:
    """What the codemod would write, in memory."""
    found = discover(paths, options.exclude, terms.current)
    tasks = project.tasks(found.files, partial(map, project.scan))
    return [*found.problems, *(outcome for task in tasks for outcome in work(task, terms))]


def _verdict(wanted: Wanted, outcomes: Sequence[FileOutcome], options: Options, starting: Start) -> Verdict:
    refusal = _refusal(outcomes)
    name = wanted.module or str(wanted.paths[0])
    if refusal:
        return Verdict(name, Outcome.NOT_RUN, options.processes, problem=refusal)
    folder = project_of(wanted, options.data)
    with _runner(folder, options, starting) as runner:
        untouched = folder.data_state()
        proof = Proof(subject(wanted, outcomes, folder), runner, options.processes, _teller(options))
        verdict = proof.verdict()
        changed = [path for path, state in folder.data_state().items() if untouched.get(path) != state]
    if changed:
        problem = f"the script wrote to {changed[0]}, which --data says is only read"
        return replace(verdict, outcome=Outcome.NOT_RUN, problem=problem)
    return verdict


def _observed(wanted: Wanted, options: Options, starting: Start) -> Facts:
    """What a run shows, kept if that was asked for."""
    folder = project_of(wanted, options.data)
    with _runner(folder, options, starting) as runner:
        facts = observe(wanted, runner, _teller(options))
    if options.facts is not None:
        write_whole(options.facts, save(facts, options.facts))
    return facts


@contextmanager
def _runner(folder: Project, options: Options, starting: Start) -> Iterator[Runner]:
    with tempfile.TemporaryDirectory(prefix="accel-migrate-") as scratch:
        yield Runner(
            folder,
            Path(scratch).resolve(),
            options.python or sys.executable,
            options.steps,
            options.timeout,
            options.on_cpu or options.stand_ins,
            starting,
            "small" if options.stand_ins else "",
            tuple(made_files.parse(text) for text in options.shape),
            tuple(shrink.parse(text) for text in options.shrink),
        )


def _refusal(outcomes: Sequence[FileOutcome]) -> str:
    """Why there is nothing to prove."""
    failed = next((each for each in outcomes if each.status is Status.FAILED), None)
    if failed is not None:
        return f"{failed.place} {failed.reason}"
    if not any(each.status is Status.MIGRATED for each in outcomes):
        reasons = dict.fromkeys(each.reason for each in outcomes if each.reason)
        return f"nothing was migrated ({'; '.join(reasons) or 'no file'}), so there is nothing to prove"
    return ""


def _teller(options: Options) -> partial[None]:
    return partial(_tell, begun=time.monotonic(), quiet=options.quiet)


def _tell(what: str, begun: float, quiet: bool) -> None:
    if not quiet:
        print(f"accel-migrate: {time.monotonic() - begun:4.0f} s, {what}", file=sys.stderr, flush=True)


def _present(verdict: Verdict, outcomes: Sequence[FileOutcome], options: Options) -> None:
    shown = Shown(answer(verdict), page.render(verdict), data.render(verdict))
    report = Report(tuple(outcomes), written=verdict.written, diff=options.diff, proof=shown)
    if options.html is not None:
        write_whole(options.html, render(report, "html").encode("utf-8", "backslashreplace"))
    style = options.output_format or "full"
    if style not in FOR_PEOPLE:
        sys.stdout.write(render(report, style))
    elif not options.quiet or verdict.outcome is not Outcome.PROVEN:
        sys.stdout.write(text.render(verdict, wants_color(options.color, sys.stdout, os.environ)) + "\n")
        sys.stdout.write(render(report, style))
