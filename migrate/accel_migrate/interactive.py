"""Asks about each change, as `git add -p` does; once for those that stand or fall as one."""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from accel_migrate.document import Document
from accel_migrate.errors import MigrateError
from accel_migrate.findings import line_of
from accel_migrate.outcome import Outcome, Part, shown
from accel_migrate.plan import Change, Safety, Status, Together
from accel_migrate.report.diff import unified

ANSWERS = {
    "y": "apply what is shown",
    "n": "do not apply it",
    "a": "apply it and all later ones in this file",
    "d": "apply neither it nor any later one in this file",
    "q": "stop asking: apply neither it nor anything after it",
    "e": "apply it, and edit the rewritten file before it is written",
    "?": "print this help",
}


@dataclass
class Prompt:
    """A conversation: answers for one change, for the rest of a file, or for the rest of the run."""

    current: Path
    for_file: dict[Path, bool] = field(default_factory=dict)
    stopped: bool = False
    to_edit: set[Path] = field(default_factory=set)
    answered: dict[Together, bool] = field(default_factory=dict)
    seen: dict[Path, int] = field(default_factory=dict)  # changes that were asked about, by the file that comes first

    def __call__(
        self, documents: Mapping[Path, Document], path: Path, change: Change, together: Together | None
    ) -> bool:
        """Whether a change may be made. One that only follows from others (`together` is None) goes with them."""
        if self.stopped:
            return False
        if path in self.for_file:
            return self.for_file[path]
        if together is None:
            return True
        if together not in self.answered:
            self.answered[together] = self._asked(documents, path, together)
        return self.answered[together]

    def _asked(self, documents: Mapping[Path, Document], path: Path, together: Together) -> bool:
        first = self.seen.get(path, 0) + 1
        last = self.seen[path] = first + len(together.changes) - 1
        click.echo(f"\n{first}{f'-{last}' if last > first else ''}/{max(last, together.of)}", nl=False)
        if last > first:
            click.echo(f": {len(together.changes)} changes that a training loop is migrated by, all or none", nl=False)
        for where in dict.fromkeys(where for where, _ in together.changes):
            self._show(documents[where], [change for other, change in together.changes if other == where])
        answer = self._answer()
        if answer in "ad":
            self.for_file[path] = answer == "a"
        if answer == "e":
            self.to_edit.add(path)
        self.stopped = answer == "q"
        return answer in "yae"

    def _show(self, it: Document, changes: Sequence[Change]) -> None:
        for change in changes:
            cell, line = it.place(change.line)
            place = f"{'' if cell is None else f'cell {cell}:'}{line}:{change.column}"
            click.echo(f"\n{shown(it.source.path, self.current)}:{place}: {change.code} {change.message}", nl=False)
            if change.safety is Safety.REVIEW:
                click.echo(" (for review: right in most scripts, look closely)", nl=False)
        click.echo()
        click.echo(_preview(it, changes) or f"    {line_of(it.source, changes[0].line).strip()}\n", nl=False)

    def _answer(self) -> str:
        while True:
            try:
                answer = click.prompt("Apply [y,n,a,d,q,e,?]", prompt_suffix="? ", show_default=False)
            except click.Abort:
                return "q"  # the end of input, or Ctrl-C: nothing after this point is wanted
            if answer in ANSWERS and answer != "?":
                return str(answer)
            for key, meaning in ANSWERS.items():
                click.echo(f"{key} - {meaning}")

    def edited(self, outcome: Outcome) -> Outcome:
        """The outcome after the person's own hand, where that was asked for; what does not parse is asked again."""
        if outcome.path not in self.to_edit or outcome.status is not Status.MIGRATED or outcome.path.suffix != ".py":
            return outcome
        with tempfile.TemporaryDirectory() as folder:
            draft = Path(folder) / outcome.path.name
            draft.write_bytes(outcome.after)
            while True:
                click.edit(filename=str(draft))
                after = draft.read_bytes()
                try:
                    ast.parse(after)
                    break
                except (SyntaxError, ValueError) as error:
                    click.echo(f"{outcome.name}: what you wrote does not parse ({error}); the editor opens again")
        parts = tuple(Part(part.label, part.before, after, part.encoding) for part in outcome.parts)
        return replace(outcome, after=after, parts=parts)


def _preview(it: Document, changes: Sequence[Change]) -> str:
    """What the changes do on their own, as a diff without its head; empty when they make sense only with others."""
    from accel_migrate.apply import apply

    try:
        program = it.source.to_bytes(apply(it.source, [edit for change in changes for edit in change.edits]))
    except (MigrateError, AssertionError):
        return ""
    alone = Outcome(it.source.path, it.source.path.name, Status.MIGRATED, parts=tuple(it.parts(program)))
    lines = unified(alone).decode(it.source.encoding, "replace").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(("--- ", "+++ ")))
