"""One task from bytes to outcomes: read, heed the author's comments, migrate within limits, never fail in silence."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from accel_migrate import pipeline
from accel_migrate.document import Document, document
from accel_migrate.errors import SourceError
from accel_migrate.findings import outcome_of
from accel_migrate.judge import Ask, Judge
from accel_migrate.limits import LARGEST_FILE, LARGEST_NOTEBOOK, TimeLimitReached, time_limit
from accel_migrate.outcome import Outcome, shown
from accel_migrate.plan import Status
from accel_migrate.project import Task
from accel_migrate.selection import Selection
from accel_migrate.suppress import suppressions
from accel_migrate.unread_callers import calls_to_check, with_tests_to_change


@dataclass(frozen=True)
class Terms:
    """What holds for every task of a run."""

    settings: pipeline.Settings
    selection: Selection
    current: Path
    seconds: float | None  # per file
    keep_traceback: bool = False


def work(task: Task, terms: Terms, ask: Ask | None = None) -> list[Outcome]:
    """Outcomes of the task's files; nothing is written here."""
    documents: list[Document] = []
    unread: dict[Path, SourceError] = {}
    for path in task.sources:
        try:
            documents.append(read(path))
        except SourceError as error:
            unread[path] = error
    outcomes = migrate_together(documents, neighbours(task.siblings), terms, ask, task.tests)
    failures = [failure(p, terms, f"{e}{calls_to_check(p, outcomes)}", e.line) for p, e in unread.items()]
    return failures + outcomes


def read(path: Path) -> Document:
    """A document that parses, within the size limit; SourceError says what is wrong with it."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror or error}") from error
    return parsed(path, data)


def parsed(path: Path, data: bytes) -> Document:
    limit = LARGEST_NOTEBOOK if path.suffix == ".ipynb" else LARGEST_FILE
    if len(data) > limit:
        raise SourceError(f"is {len(data):,} bytes long, more than the limit of {limit:,}")
    it = document(path, data)
    if len(it.source.data) > LARGEST_FILE:
        raise SourceError(f"holds more than {LARGEST_FILE:,} bytes of code")
    try:
        assert it.source.tree  # parsing is lazy, and a file that does not parse must be known here
    except SourceError as error:
        cell, line = it.place(error.line or 1)
        if cell is None:
            raise
        raise SourceError(f"in cell {cell}, line {line}, {error}") from error
    return it


def neighbours(paths: Iterable[Path]) -> list[Document]:
    """Files that are only read; one that cannot be parsed is not ours to judge, and tells nothing."""
    documents: list[Document] = []
    for path in paths:
        with suppress(SourceError):
            documents.append(read(path))
    return documents


def failure(path: Path, terms: Terms, reason: str, line: int | None = None) -> Outcome:
    return Outcome(path, shown(path, terms.current), Status.FAILED, reason, line)


def migrate_together(
    documents: Sequence[Document],
    siblings: Sequence[Document],
    terms: Terms,
    ask: Ask | None = None,
    tests: Collection[Path] = (),
) -> list[Outcome]:
    """One call of the codemod; when it fails, every file of the piece is left, because half of it would not run."""
    if not documents:
        return []
    try:
        with time_limit(terms.seconds and terms.seconds * len(documents)):
            return _migrated(documents, siblings, terms, ask, tests)
    except TimeLimitReached:
        reason = f"took longer than {terms.seconds:g} s per file; it is left as it was (--time-limit raises this)"
    except RecursionError:
        reason = "is nested too deeply to analyse; it is left as it was"
    except Exception as error:  # whatever a rule does wrong, the other files must go on
        reason = _crash(error, terms)
    first, *others = (each.source.path for each in documents)
    rest = f"is left as it was, together with {first.name}, which it belongs to"
    return [failure(first, terms, reason), *(failure(path, terms, rest) for path in others)]


def _migrated(
    documents: Sequence[Document],
    siblings: Sequence[Document],
    terms: Terms,
    ask: Ask | None,
    tests: Collection[Path],
) -> list[Outcome]:
    by_path = {each.source.path: each for each in documents}
    comments = {path: suppressions(each.source.text) for path, each in by_path.items()}
    judge = Judge(terms.selection, terms.settings.unsafe_fixes, comments, by_path, ask)
    free = [each for path, each in by_path.items() if comments[path].skip_line is None]
    kept = [each for path, each in by_path.items() if comments[path].skip_line is not None]
    results = pipeline.migrate(
        [each.source for each in free],
        terms.settings,
        siblings={each.source.path: each.source for each in (*siblings, *kept)},
        tests=tests,
        accept=judge,
        keeps=judge.keeps_moves,
    )
    outcomes = [outcome_of(each, result, judge, terms.current) for each, result in zip(free, results, strict=True)]
    outcomes = [with_tests_to_change(each, tests) for each in outcomes]
    return outcomes + [_skipped(each, comments[each.source.path].skip_line, terms) for each in kept]


def _skipped(it: Document, line: int | None, terms: Terms) -> Outcome:
    name = shown(it.source.path, terms.current)
    reason = f"the comment on line {line} asks for it"
    return Outcome(it.source.path, name, Status.SKIPPED, reason, lines=len(it.source.line_starts))


def _crash(error: Exception, terms: Terms) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}:{last.lineno}"
    details = "\n" + "".join(traceback.format_exception(error)).rstrip() if terms.keep_traceback else ""
    return (
        f"internal error, {type(error).__name__} at {where}: {error}; the file is as it was. This is a bug of "
        f"accel-migrate: please report it with the output of accel-migrate --check -v for this file{details}"
    )
