"""A codemod of two lines, for tests of what stands around the real one: it removes `.cuda()` and notes `.half()`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from accel_migrate.pipeline import Settings
from accel_migrate.plan import Change, FileResult, Note, Safety, Status, Together
from accel_migrate.source import Source


def migrate(
    sources: Sequence[Source],
    settings: Settings,
    *,
    siblings: Mapping[Path, Source] | None = None,
    tests: Collection[Path] = (),
    accept: Callable[[Source, Change, Together | None], bool] = lambda source, change, together: True,
    keeps: Callable[[Source, int], bool] = lambda source, line: False,
) -> list[FileResult]:
    return [_migrate(source, settings, accept) for source in sources]


def _migrate(
    source: Source, settings: Settings, accept: Callable[[Source, Change, Together | None], bool]
) -> FileResult:
    if "crash" in source.text:
        raise ZeroDivisionError("a rule went wrong")
    if "forever" in source.text:
        while True:
            pass
    lines = source.text.splitlines(keepends=True)
    applied, refused, notes = [], [], []
    for number, line in enumerate(lines, 1):
        if ".cuda()" in line:
            change = Change("AM101", number, line.index(".cuda()") + 1, "prepare() moves this")
            together = Together(((source.path, change),), source.text.count(".cuda()"))
            (applied if accept(source, change, together) else refused).append(change)
        if ".xpu()" in line:
            refused.append(Change("AM201", number, line.index(".xpu()") + 1, "perhaps", Safety.REVIEW))
        if ".half()" in line:
            notes.append(Note("AM301", number, line.index(".half()") + 1, "half precision is left alone"))
    for change in applied:
        lines[change.line - 1] = lines[change.line - 1].replace(".cuda()", "")
    after = source.to_bytes("".join(lines))
    status = Status.MIGRATED if applied else Status.UNCHANGED
    reason = "" if applied else "no training loop"
    return FileResult(source.path, status, reason, tuple(applied), tuple(refused), tuple(notes), source.data, after)
