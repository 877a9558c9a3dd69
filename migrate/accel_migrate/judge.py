"""Decides which changes may be applied: what was selected, what the author's comments allow, what the person says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from accel_migrate.document import Document
from accel_migrate.outcome import Decision
from accel_migrate.plan import Change, Safety, Together
from accel_migrate.selection import Selection
from accel_migrate.source import Source
from accel_migrate.suppress import Suppression, Suppressions

MOVES = "AM201"
Ask = Callable[[Mapping[Path, Document], Path, Change, Together | None], bool]


@dataclass
class Judge:
    """Answers the codemod's question for each change, and remembers why it said no."""

    selection: Selection
    unsafe_fixes: bool
    comments: Mapping[Path, Suppressions]
    documents: Mapping[Path, Document]
    ask: Ask | None
    refusals: dict[tuple[Path, str, int, int], Decision] = field(default_factory=dict)
    heeded: dict[Path, set[Suppression]] = field(default_factory=dict)  # comments by which moves stay

    def __call__(self, source: Source, change: Change, together: Together | None) -> bool:
        if not self.selection.allows(change.code):
            decision = Decision.DESELECTED
        elif self.comments[source.path].covering(change.code, change.line):
            decision = Decision.SUPPRESSED
        elif self.ask and not self.ask(self.documents, source.path, change, together):
            decision = Decision.DECLINED
        else:
            return True
        self.refusals[source.path, change.code, change.line, change.column] = decision
        return False

    def keeps_moves(self, source: Source, line: int) -> bool:
        """Whether a needless move on this line stays: that is an answer of its own, and the loop is migrated around it."""
        comment = self.comments[source.path].covering(MOVES, line) if source.path in self.comments else None
        if comment is not None and comment.codes:
            self.heeded.setdefault(source.path, set()).add(comment)
            return True
        return not self.selection.allows(MOVES)

    def why_not(self, path: Path, change: Change) -> Decision:
        """Why a change that was found was not applied; some are never asked about, because their loop was left."""
        said = self.refusals.get((path, change.code, change.line, change.column))
        if said:
            return said
        if self.comments[path].covering(change.code, change.line):
            return Decision.SUPPRESSED
        return Decision.REVIEW if change.safety is Safety.REVIEW and not self.unsafe_fixes else Decision.LEFT
