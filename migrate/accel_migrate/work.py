"""One task from bytes to outcomes: read, heed the author's comments, migrate within limits, never fail in silence."""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from accel_migrate import pipeline
from accel_migrate.document import Document, document
from accel_migrate.errors import SourceError
from accel_migrate.limits import LARGEST_FILE, LARGEST_NOTEBOOK, TimeLimitReached, time_limit
from accel_migrate.outcome import Decision, Finding, Outcome, shown
from accel_migrate.plan import Change, FileResult, Note, Safety, Status
from accel_migrate.project import Task
from accel_migrate.selection import Selection
from accel_migrate.source import Source
from accel_migrate.suppress import Suppression, Suppressions, suppressions

Ask = Callable[[Document, Change], bool]


@dataclass(frozen=True)
class Terms:
    """What holds for every task of a run."""

    settings: pipeline.Settings
    selection: Selection
    current: Path
    seconds: float | None
    keep_traceback: bool = False


def read(path: Path) -> Document:
    """A document that parses, within the size limit."""
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


def work(task: Task, terms: Terms, ask: Ask | None = None) -> list[Outcome]:
    """Outcomes of the task's files; nothing is written here."""
    documents: list[Document] = []
    outcomes: list[Outcome] = []
    for path in task.sources:
        try:
            documents.append(read(path))
        except SourceError as error:
            outcomes.append(failure(path, terms, str(error), error.line))
    return outcomes + migrate_together(documents, neighbours(task.siblings), terms, ask)


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
    documents: Sequence[Document], siblings: Sequence[Document], terms: Terms, ask: Ask | None = None
) -> list[Outcome]:
    """One call of the codemod; when it fails, every file of the piece is left, because half of it would not run."""
    comments = {each.source.path: suppressions(each.source.text) for each in documents}
    judge = _Judge(terms.selection, comments, {each.source.path: each for each in documents}, ask)
    free = [each for each in documents if comments[each.source.path].skip_line is None]
    kept = [each for each in documents if comments[each.source.path].skip_line is not None]
    try:
        with time_limit(terms.seconds and terms.seconds * max(len(free), 1)):
            results = pipeline.migrate(
                [each.source for each in free],
                terms.settings,
                siblings={each.source.path: each.source for each in (*siblings, *kept)},
                accept=judge,
            )
            outcomes = [_outcome(each, result, judge, terms) for each, result in zip(free, results, strict=True)]
            return _all_or_none(outcomes) + [_skipped(each, comments, terms) for each in kept]
    except TimeLimitReached:
        reason = f"took longer than {terms.seconds:g} s per file; it is left as it was (--time-limit raises this)"
    except RecursionError:
        reason = "is nested too deeply to analyse; it is left as it was"
    except Exception as error:  # whatever a rule does wrong, the other files must go on
        reason = _crash(error, terms)
    first, *others = (each.source.path for each in documents)
    rest = f"is left as it was, together with {first.name}, which it belongs to"
    return [failure(first, terms, reason), *(failure(path, terms, rest) for path in others)]


def _all_or_none(outcomes: list[Outcome]) -> list[Outcome]:
    """When a rewrite failed, the files that belong to it stay as they are too: together they ran, apart they do not."""
    failed = next((each for each in outcomes if each.status is Status.FAILED), None)
    if failed is None:
        return outcomes
    reason = f"left as it was, because {failed.name} could not be migrated"
    return [
        replace(each.without_texts(), status=Status.FAILED, reason=reason, findings=())
        if each.status is Status.MIGRATED
        else each
        for each in outcomes
    ]


def _skipped(it: Document, comments: dict[Path, Suppressions], terms: Terms) -> Outcome:
    path = it.source.path
    reason = f"the comment on line {comments[path].skip_line} asks for it"
    return Outcome(path, shown(path, terms.current), Status.SKIPPED, reason, lines=len(it.source.line_starts))


def _crash(error: Exception, terms: Terms) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}:{last.lineno}"
    details = "\n" + "".join(traceback.format_exception(error)).rstrip() if terms.keep_traceback else ""
    return (
        f"internal error, {type(error).__name__} at {where}: {error}; the file is as it was. This is a bug of "
        f"accel-migrate: please report it with the output of accel-migrate --check -v for this file{details}"
    )


@dataclass
class _Judge:
    """Says which changes may be applied, and remembers why one may not."""

    selection: Selection
    comments: dict[Path, Suppressions]
    documents: dict[Path, Document]
    ask: Ask | None
    refusals: dict[tuple[Path, str, int, int], Decision] = field(default_factory=dict)

    def __call__(self, source: Source, change: Change) -> bool:
        if not self.selection.allows(change.code):
            decision = Decision.DESELECTED
        elif self.comments[source.path].covering(change.code, change.line):
            decision = Decision.SUPPRESSED
        elif self.ask and not self.ask(self.documents[source.path], change):
            decision = Decision.DECLINED
        else:
            return True
        self.refusals[source.path, change.code, change.line, change.column] = decision
        return False

    def decision(self, path: Path, change: Change, unsafe_fixes: bool) -> Decision:
        """Why a change that was found was not applied."""
        said = self.refusals.get((path, change.code, change.line, change.column))
        if said:
            return said
        if self.comments[path].covering(change.code, change.line):
            return Decision.SUPPRESSED
        return Decision.REVIEW if change.safety is Safety.REVIEW and not unsafe_fixes else Decision.LEFT


def _outcome(it: Document, result: FileResult, judge: _Judge, terms: Terms) -> Outcome:
    path, comments = it.source.path, judge.comments[it.source.path]
    used: set[Suppression] = set()
    findings: list[Finding] = []

    def add(found: Change | Note, safety: Safety, decision: Decision) -> None:
        covering = comments.covering(found.code, found.line)
        if covering and decision is not Decision.APPLIED:
            used.add(covering)
        if decision is Decision.NOTE and (covering or terms.selection.ignores(found.code)):
            return
        findings.append(_finding(it, found, safety, decision))

    for change in result.applied:
        add(change, change.safety, Decision.APPLIED)
    for change in result.refused:
        add(change, change.safety, judge.decision(path, change, terms.settings.unsafe_fixes))
    advice = it.advice(min(change.line for change in result.applied)) if result.applied else ()
    for note in (*result.notes, *advice):
        add(note, Safety.NOTE, Decision.NOTE)
    for note in comments.unused(used):
        findings.append(_finding(it, note, Safety.NOTE, Decision.NOTE))
    findings.sort(key=lambda each: (each.cell or 0, each.line, each.column, each.code))
    outcome = Outcome(
        path,
        shown(path, terms.current),
        result.status,
        result.reason,
        findings=tuple(findings),
        lines=len(it.source.line_starts),
    )
    if result.status is not Status.MIGRATED:
        return outcome
    removed, added = _touched(result.before, result.after)
    return replace(
        outcome,
        parts=tuple(it.parts(result.after)),
        before=it.data,
        after=it.rewritten(result.after),
        removed=removed,
        added=added,
    )


def _touched(before: bytes, after: bytes) -> tuple[int, int]:
    """How many lines went and how many came."""
    # Without its default heuristic the matcher takes quadratic time where one line is repeated.
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines())
    changed = [step for step in matcher.get_opcodes() if step[0] != "equal"]
    return sum(end - start for _, start, end, _, _ in changed), sum(end - start for _, _, _, start, end in changed)


def _finding(it: Document, found: Change | Note, safety: Safety, decision: Decision) -> Finding:
    cell, line = it.place(found.line)
    excerpt = line_of(it.source, found.line).strip()
    return Finding(found.code, line, found.column, _in_cells(it, found.message), safety, decision, cell, excerpt)


def _in_cells(it: Document, message: str) -> str:
    """The message with lines of the joined program told as lines of their cells."""

    def told(match: re.Match[str]) -> str:
        cell, line = it.place(int(match[1]))
        return match[0] if cell is None else f"cell {cell}, line {line}"

    return re.sub(r"\bline (\d+)", told, message)


def line_of(source: Source, number: int) -> str:
    """The text of a line, empty when there is no such line."""
    starts = [*source.line_starts, len(source.text)]
    return source.text[starts[number - 1] : starts[number]] if 0 < number < len(starts) else ""
