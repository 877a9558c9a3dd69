"""A run from paths to exit code: find, migrate, write what is asked, and report every file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from accel_migrate import project
from accel_migrate.catalogue import known_codes
from accel_migrate.discover import Found, discover
from accel_migrate.errors import MigrateError, SourceError
from accel_migrate.facts import Facts, load
from accel_migrate.limits import SECONDS_PER_FILE
from accel_migrate.options import Options
from accel_migrate.outcome import A_TEST, NOT_TORCH, Outcome, shown
from accel_migrate.plan import Status
from accel_migrate.present import Presenter
from accel_migrate.progress import progress
from accel_migrate.project import Task
from accel_migrate.report.text import notes_of
from accel_migrate.selection import selection
from accel_migrate.source import concerns_torch
from accel_migrate.undo import Journal, state_folder
from accel_migrate.work import Terms, failure, migrate_together, neighbours, parsed, read, work
from accel_migrate.write import Rewrite, WriteError, write_together, write_whole

if TYPE_CHECKING:
    from accel_migrate.interactive import Prompt

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")
FEWEST_FOR_POOL = 8  # files; below that, starting processes costs more than it saves


def run(options: Options) -> int:
    """Do what was asked. 0: done or nothing to do; 1: --check or --diff found a change; 2: something failed."""
    terms = terms_of(options)
    current = terms.current
    presenter = Presenter(options)
    if options.reads_stdin:
        outcomes = [_aside(current / (options.stdin_filename or "-"), sys.stdin.buffer.read(), options, terms)]
        presenter.stream(outcomes[0])
    else:
        outcomes = _from_disk(options, terms, presenter)
    presenter.finish(outcomes)
    return _exit_code(outcomes, options)


def terms_of(options: Options) -> Terms:
    """What holds for every file of a run in the current folder."""
    return Terms(
        settings=replace(options.settings(), facts=_facts(options)),
        selection=selection(options.select, options.ignore, known_codes()),
        current=Path.cwd(),
        seconds=None if options.interactive else options.time_limit or SECONDS_PER_FILE,
        keep_traceback=options.verbose,
    )


def _facts(options: Options) -> Facts | None:
    """What an earlier run showed."""
    return load(options.facts) if options.facts is not None and not options.observe else None


def _exit_code(outcomes: Sequence[Outcome], options: Options) -> int:
    statuses = {outcome.status for outcome in outcomes}
    if Status.FAILED in statuses:
        return 2
    return 1 if Status.MIGRATED in statuses and not options.writes else 0


def _aside(path: Path, data: bytes, options: Options, terms: Terms) -> Outcome:
    """Migrate one script that is not written in place: it goes, rewritten or not, to --output or standard output."""
    try:
        it = parsed(path, data)
    except SourceError as error:
        return failure(path, terms, str(error), error.line)
    tasks = project.tasks([Found(path, path.parent, named=True)], partial(map, project.scan))
    siblings = neighbours(sibling for task in tasks for sibling in task.siblings)
    tests = {path for task in tasks for path in task.tests}
    (outcome,) = migrate_together([it], siblings, terms, _prompt(options, terms), tests)
    if options.writes and outcome.status is not Status.FAILED:
        if options.output is None:
            sys.stdout.buffer.write(outcome.after or data)
        else:
            write_whole(options.output, outcome.after or data)
    return outcome


def _from_disk(options: Options, terms: Terms, presenter: Presenter) -> list[Outcome]:
    found = discover(options.paths, options.exclude, terms.current)
    if options.output is not None:
        if found.problems:
            return list(found.problems)
        if len(found.files) != 1:
            raise MigrateError(f"--output takes one file, and {len(found.files)} were given")
        return [_aside(found.files[0].path, found.files[0].path.read_bytes(), options, terms)]
    outcomes = [*found.problems, *_in_place(found.files, options, terms, presenter)]
    return sorted(outcomes, key=lambda outcome: outcome.path)


def _in_place(files: Sequence[Found], options: Options, terms: Terms, presenter: Presenter) -> Iterator[Outcome]:
    """Outcomes of all files, sorted; each is written and shown as soon as those before it are."""
    jobs = _jobs(options, len(files))
    tasks = project.tasks(files, lambda paths: _spread(project.scan, paths, jobs, project.unread))
    prompt = _prompt(options, terms)
    results = _spread(partial(work, terms=terms, ask=prompt), tasks, jobs, partial(_lost, terms=terms))
    results = progress(results, len(tasks), wanted=prompt is None and presenter.leaves_the_terminal_free)
    if prompt is not None:
        results = ([prompt.edited(outcome) for outcome in result] for result in results)
    taken = {path for task in tasks for path in task.sources}
    bystanders = [_bystander(file, terms) for file in files if file.path not in taken]
    with Journal(state_folder()) as journal:
        finished = (written(result, journal) if options.writes else result for result in results)
        for outcome in _in_order(chain([bystanders], finished), [file.path for file in files]):
            presenter.stream(outcome)
            # Only findings wait for the end, so memory stays flat however many files there are.
            yield outcome if presenter.needs_texts else outcome.without_texts()
    presenter.can_undo = not journal.problem


def _spread(
    work: Callable[[TaskT], ResultT], tasks: Iterable[TaskT], jobs: int, lost: Callable[[TaskT], ResultT]
) -> Iterator[ResultT]:
    """The result of each task, in order; what starts processes is imported only where there are several."""
    if jobs == 1:
        return map(work, tasks)
    from accel_migrate.pool import spread

    return spread(work, tasks, jobs, lost)


def _jobs(options: Options, files: int) -> int:
    if options.interactive or files < FEWEST_FOR_POOL:
        return 1
    return options.jobs or _cores()


def _cores() -> int:
    """The cores that this process may use; in a container that is fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _prompt(options: Options, terms: Terms) -> Prompt | None:
    if not options.interactive:
        return None
    from accel_migrate.interactive import Prompt

    return Prompt(terms.current)


def _bystander(file: Found, terms: Terms) -> Outcome:
    """A test, or a file without the word torch: nothing to migrate. One that was named is at least checked to be Python."""
    if file.named:
        try:
            read(file.path)
        except SourceError as error:
            return failure(file.path, terms, str(error), error.line)
    name = shown(file.path, terms.current)
    if not file.named and _mentions_torch(file.path):
        return Outcome(file.path, name, Status.SKIPPED, A_TEST)
    return Outcome(file.path, name, Status.UNCHANGED, NOT_TORCH)


def _mentions_torch(path: Path) -> bool:
    try:
        return concerns_torch(path.read_bytes())
    except OSError:
        return False


def _lost(task: Task, terms: Terms) -> list[Outcome]:
    reason = "made its process die, out of memory or by a bug; it is left as it was, please report it"
    return [failure(path, terms, reason) for path in task.sources]


def written(outcomes: list[Outcome], journal: Journal) -> list[Outcome]:
    """The outcomes of one task once it is on disk: all of its files, or none."""
    rewrites = [Rewrite(each.path, each.before, each.after) for each in outcomes if each.status is Status.MIGRATED]
    if not rewrites:
        return outcomes
    journal.record(rewrites, {each.path: list(notes_of(each)) for each in outcomes})
    try:
        write_together(rewrites)
    except WriteError as error:
        because = f"is left as it was, because {error.path.name} {error}"
        return [
            each.failed(str(error) if each.path == error.path else because) if each.status is Status.MIGRATED else each
            for each in outcomes
        ]
    return outcomes


def _in_order(results: Iterable[list[Outcome]], paths: Sequence[Path]) -> Iterator[Outcome]:
    """Outcomes by path, each as soon as all before it are known."""
    waiting: dict[Path, Outcome] = {}
    expected = iter(paths)
    following = next(expected, None)
    for result in results:
        waiting.update((outcome.path, outcome) for outcome in result)
        while following in waiting:
            yield waiting.pop(following)
            following = next(expected, None)
