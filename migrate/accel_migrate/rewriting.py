"""From decided changes to rewritten files: a loop whose result breaks a post-condition is taken back, in all its files."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from accel_migrate.check import DEVICES_NAMED, NOTHING_ORPHANED, Violation, violations
from accel_migrate.emptied import emptied
from accel_migrate.errors import MigrateError, internal_error
from accel_migrate.flow.depth import depth
from accel_migrate.flow.imports import Imports, used_by
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.version import Version
from accel_migrate.leftovers import leftovers, without_unread
from accel_migrate.plan import Change, FileResult, Note, Status
from accel_migrate.source import Source
from accel_migrate.unread_options import unread_options
from accel_migrate.verify import BrokenResult, check

LOOP_LEFT = "AM901"
DEEPEST = 200  # levels; what is nested more deeply may be too much for a walk that calls itself


@dataclass(frozen=True, eq=False)
class Loop:
    """What is decided for one training loop, file by file. It is applied whole or not at all."""

    path: Path  # where its backward pass stands
    line: int
    applied: Mapping[Path, Sequence[Change]]
    refused: Mapping[Path, Sequence[Change]] = field(default_factory=dict)
    notes: Mapping[Path, Sequence[Note]] = field(default_factory=dict)

    def found(self, path: Path) -> list[Change]:
        return [*self.applied.get(path, ()), *self.refused.get(path, ())]

    def edits(self) -> set[tuple[Path, Change]]:
        return {(path, change) for path, changes in self.applied.items() for change in changes if change.edits}


@dataclass(frozen=True)
class Taken:
    """Why a loop was taken back after all: one clause, and what to report, for whoever asks for it."""

    reason: str
    detail: str = ""
    parted: str = ""  # what would be wrong, where that is about a device which the script names
    place: str = ""  # where, in the original
    sharded: str = ""  # the reason, as an evaluation has it that may be to blame
    code: str = ""  # of the condition that is broken

    def told(self, loop: Loop, path: Path) -> Taken:
        """The reason as a loop's own file says it: what is wrong in another one is looked for there."""
        return replace(self, reason=f"{self.reason}, at {self.place}") if self.place and loop.path != path else self


@dataclass(frozen=True)
class Rewriting:
    """The result of each source, and the loops that were taken back."""

    results: dict[Path, FileResult]
    taken: Mapping[Loop, Taken]


@dataclass
class Left:
    """What is said of a file's loops that are not migrated, and the changes that were found for them."""

    notes: list[Note] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    refused: list[Change] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)  # faults of ours

    def add(self, line: int, reason: str, detail: str = "", error: Exception | None = None) -> None:
        if error is not None:
            self.errors.append(error)
            detail = detail or "".join(traceback.format_exception(error)).rstrip()
        self.reasons.append(reason)
        self.notes.append(Note(LOOP_LEFT, line, 1, f"training loop left as it was: {reason}", detail))


def rewrite(
    modules: Sequence[Module],
    around: Sequence[Module],
    loops: Sequence[Loop],
    left: Mapping[Path, Left],
    confirm: Callable[[Version], None],
    accept: Callable[[Source, Change, None], bool] = lambda source, change, together: True,
) -> Rewriting:
    """Rewrite the files. `around` is read with them and never changes; `confirm` raises on a result that is wrong.

    `accept` is asked for each change that only follows from those of the loops.
    """
    programs = {module.path: Version(module.source, module) for module in (*modules, *around)}
    sources = [module.source for module in modules]
    taken: dict[Loop, Taken] = {}
    failed: dict[Path, Exception] = {}
    done: dict[tuple[Path, tuple[Change, ...]], _Rewritten] = {}
    imports = Imports([version.source for version in programs.values()])
    checked: dict[frozenset[tuple[Path, tuple[Change, ...]]], list[Violation]] = {}

    def others(path: Path) -> list[Source]:
        return [module.source for module in (*modules, *around) if module.path != path]

    while True:
        applied = _applied(loop for loop in loops if loop not in taken)
        results: dict[Path, Version] = {}
        untidy: set[Path] = set()
        for path, changes in list(applied.items()):
            try:
                if (path, changes) not in done:
                    done[path, changes] = _rewritten(programs[path], others(path), changes, confirm, accept)
                it = done[path, changes]
                applied[path], results[path] = it.changes, it.result
                untidy |= {path} if it.declined else set()
            except Exception as error:  # whatever went wrong with it, the other loops must go on
                failed[path] = error if isinstance(error, MigrateError) else BrokenResult(internal_error(error))
                _take(loops, taken, path, Taken(f"{path.name} could not be rewritten: {failed[path]}"))
        if len(results) < len(applied):
            continue
        try:
            found: list[tuple[Violation, list[Loop]]] = []
            for together in _runs([loop for loop in loops if loop not in taken], programs, imports):
                own = {path: it for path, it in results.items() if any(loop.applied.get(path) for loop in together)}
                key = frozenset((path, tuple(applied[path])) for path in own)
                if key not in checked:
                    checked[key] = _broken(list(programs.values()), own, applied, untidy)
                found += [(violation, together) for violation in checked[key]]
        except Exception as error:  # what cannot be checked is not written
            strange = [version.source for version in programs.values() if depth(version.tree) > DEEPEST]
            programs = {path: v for path, v in programs.items() if path in results or v.source not in strange}
            lost = [*strange, *used_by(strange, sources)] or sources
            for path in {source.path for source in lost} & results.keys():
                _take(loops, taken, path, Taken(f"its result cannot be checked: {_trouble(strange, error)}"))
            continue
        if not found:
            break
        earlier = set(taken)
        # What shows in a file that no loop changes may only follow from the loops that others show.
        for violation, together in [each for each in found if _changing(each[1], each[0])] or found:
            if _changing([loop for loop in taken if loop not in earlier], violation):
                continue  # what changes that file is taken back already: the rest is checked again
            why = _reason(violation, programs, results.get(violation.path))
            _take(together, taken, violation.path, why, violation)
    kept = [loop for loop in loops if loop not in taken]
    for path, note in unread_options(programs, results):
        left[path].notes.append(note)
    files = {
        source.path: failure(source, failed[source.path])
        if source.path in failed
        else _result(source, kept, taken, left, applied.get(source.path, ()), results.get(source.path))
        for source in sources
    }
    return Rewriting(files, taken)


def _trouble(strange: Sequence[Source], error: Exception) -> str:
    return f"{strange[0].path.name} is nested too deeply" if strange else internal_error(error)


def _applied(loops: Iterable[Loop]) -> dict[Path, tuple[Change, ...]]:
    """The changes of each file; one that several loops ask for is made once."""
    found: dict[Path, dict[Change, None]] = {}
    for loop in loops:
        for path, changes in loop.applied.items():
            found.setdefault(path, {}).update(dict.fromkeys(changes))
    order = {path: sorted(changes, key=_place) for path, changes in found.items()}
    return {path: tuple(changes) for path, changes in order.items() if changes}


@dataclass(frozen=True)
class _Rewritten:
    changes: tuple[Change, ...]
    result: Version
    declined: bool  # what was left without a reader stays, because that was asked for


def _rewritten(
    before: Version,
    others: Sequence[Source],
    changes: tuple[Change, ...],
    confirm: Callable[[Version], None],
    accept: Callable[[Source, Change, None], bool],
) -> _Rewritten:
    """The file with all changes made, and with those that take away what they left without a reader."""
    from accel_migrate.apply import apply  # libcst is imported only for a file that changes

    source = before.source

    def made() -> Version:
        return Version(check(source, apply(source, (edit for change in changes for edit in change.edits))))

    result = made()
    declined: set[Change] = set()
    while True:
        pruned = without_unread(changes, result)
        if pruned != changes:  # first what the changes themselves bind for nobody: it is no leftover of the original
            changes = pruned
            result = made()
            continue
        follows = [*leftovers(before, result, others), *emptied(before, result, others)]
        new = [each for each in follows if each not in declined and each not in changes]
        accepted = [each for each in new if accept(source, each, None)]
        declined |= set(new) - set(accepted)
        if not accepted:
            break
        changes = (*changes, *accepted)
        result = made()
    confirm(result)
    return _Rewritten(tuple(sorted(changes, key=_place)), result, bool(declined))


def _place(change: Change) -> tuple[int, int, str]:
    return change.line, change.column, change.code


def _broken(
    programs: Sequence[Version],
    results: Mapping[Path, Version],
    applied: Mapping[Path, Sequence[Change]],
    untidy: set[Path],
) -> list[Violation]:
    """The first violation of each file, and of each that causes one: what the others say may only follow from it."""
    found: dict[tuple[Path, Path | None], Violation] = {}
    if results:
        for violation in violations(programs, results, applied):
            if violation.code != NOTHING_ORPHANED.code or violation.path not in untidy:
                found.setdefault((violation.path, violation.cause), violation)
    return list(found.values())


def _reason(violation: Violation, programs: Mapping[Path, Version], result: Version | None) -> Taken:
    """What is broken in a line that the changes wrote is a fault of ours; in one of the script's own it is a limit."""
    place = f"{violation.path.name}:{violation.line}"
    code = result.lines[violation.line - 1].strip() if result is not None else ""
    own = [line.strip() for line in programs[violation.path].lines]
    known = [number for number, line in enumerate(own, 1) if line == code] if code else [violation.line]
    nearest = min(known, key=lambda number: abs(number - violation.line), default=None)
    detail = f"{violation.code} at {place} of the result" + (f", `{code}`" if code else "")
    if result is not None and code not in own:
        detail = f"this is a bug of accel-migrate: please report this script with {detail}"
    parted = violation.message if violation.code in DEVICES_NAMED else ""
    where = f"{violation.path.name}:{nearest}" if nearest is not None else violation.path.name
    sharded = f"{violation.message} if it were sharded ({violation.code})"
    return Taken(
        f"{violation.message} if it were migrated ({violation.code})", detail, parted, where, sharded, violation.code
    )


def _runs(loops: Sequence[Loop], programs: Mapping[Path, Version], imports: Imports) -> list[list[Loop]]:
    """The loops by the scripts that run them: those of which one changes what another runs with are checked together."""
    found: list[tuple[list[Loop], set[Path], set[Path]]] = []
    for loop in loops:
        changed = {path for path, changes in loop.applied.items() if changes}
        run = imports.together([programs[path].source for path in changed])
        joined = ([loop], changed, run)
        apart = []
        for other in found:
            if other[2].isdisjoint(changed) and run.isdisjoint(other[1]):
                apart.append(other)
            else:
                joined = ([*other[0], *joined[0]], joined[1] | other[1], joined[2] | other[2])
        found = [*apart, joined]
    return [together for together, _, _ in found]


def _changing(loops: Iterable[Loop], violation: Violation) -> list[Loop]:
    """The loops that change the file in which a condition is broken; else those that change its cause."""
    loops = list(loops)
    shown = [loop for loop in loops if loop.applied.get(violation.path)]
    return shown or [loop for loop in loops if violation.cause and loop.applied.get(violation.cause)]


def _take(
    loops: Sequence[Loop], taken: dict[Loop, Taken], path: Path, why: Taken, violation: Violation | None = None
) -> None:
    """Take back the loops that change a file, and those that share a change with them; if none does, all of them."""
    kept = [loop for loop in loops if loop not in taken]
    changing = (
        _changing(kept, violation) if violation is not None else [loop for loop in kept if loop.applied.get(path)]
    )
    waiting = changing or kept
    broken = list(waiting)
    for loop in waiting:
        with_it = replace(why, reason=f"it shares changes with a loop that is left in {path.name}: {why.reason}")
        taken.setdefault(loop, why.told(loop, path) if loop in broken else with_it)
        edits = loop.edits()
        waiting += [other for other in kept if other not in waiting and not edits.isdisjoint(other.edits())]


def _result(
    source: Source,
    kept: Sequence[Loop],
    taken: Mapping[Loop, Taken],
    left: Mapping[Path, Left],
    changes: tuple[Change, ...],
    after: Version | None,
) -> FileResult:
    """How a file ended, with what is said of the loops that stay in it and of those that were taken back."""
    path = source.path
    said = left.get(path, Left())
    told = Left(list(said.notes), list(said.reasons), list(said.refused))
    elsewhere: dict[str, list[str]] = {}
    for loop, why in taken.items():
        told.refused += [change for change in loop.found(path) if change not in changes]
        if loop.path == path:
            told.add(loop.line, why.reason, why.detail)
        elif loop.applied.get(path) and not changes:
            elsewhere.setdefault(why.reason, []).append(loop.path.name)
    for reason, files in elsewhere.items():
        names = ", ".join(dict.fromkeys(files))
        told.reasons.append(f"it changes with a training loop of {names}, which is left as it was: {reason}")
    every = [*told.notes, *[note for loop in kept for note in loop.notes.get(path, ())]]
    notes = folded(sorted(dict.fromkeys(every), key=lambda n: (n.line, n.column, n.code)))
    refused = [*told.refused, *[change for loop in kept for change in loop.refused.get(path, ())]]
    refusals = tuple(dict.fromkeys(refused))
    if after is None and said.errors:
        return failure(source, MigrateError(internal_error(said.errors[0])))
    if after is None:
        reason = "; ".join(dict.fromkeys(told.reasons)) or ("" if notes else "no training loop")
        return FileResult(path, Status.UNCHANGED, reason, (), refusals, notes, source.data, source.data)
    return FileResult(path, Status.MIGRATED, "", changes, refusals, notes, source.data, after.source.data)


def folded(notes: Iterable[Note]) -> tuple[Note, ...]:
    """What is said of several lines in the same words is said once, at the first of them."""
    lines: dict[tuple[str, str], list[int]] = {}
    first: dict[tuple[str, str] | Note, Note] = {}
    for note in notes:
        same = (note.code, note.message)
        first.setdefault(note if note.code == LOOP_LEFT else same, note)
        lines.setdefault(same, []).append(note.line)
    return tuple(_with_lines(note, lines[(note.code, note.message)][1:]) for note in first.values())


def _with_lines(note: Note, lines: list[int]) -> Note:
    further = list(dict.fromkeys(line for line in lines if line != note.line)) if note.code != LOOP_LEFT else []
    if not further:
        return note
    return replace(note, message=f"{note.message} (as in line {', line '.join(map(str, further))})")


def failure(source: Source, error: Exception) -> FileResult:
    """A file that could not be rewritten, with the place where that was found."""
    line = getattr(error, "line", None)
    reason = f"line {line}: {error}" if line else str(error)
    return FileResult(source.path, Status.FAILED, reason, before=source.data, after=source.data)
