"""Asks about each change, as `git add -p` does."""

from __future__ import annotations

import ast
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from accel_migrate.document import Document
from accel_migrate.errors import MigrateError
from accel_migrate.findings import line_of
from accel_migrate.outcome import Outcome, Part, shown
from accel_migrate.plan import Change, Safety, Status
from accel_migrate.report.diff import unified

ANSWERS = {
    "y": "apply this change",
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

    def __call__(self, it: Document, change: Change) -> bool:
        path = it.source.path
        if self.stopped:
            return False
        if path in self.for_file:
            return self.for_file[path]
        self._show(it, change)
        answer = self._answer()
        if answer in "ad":
            self.for_file[path] = answer == "a"
        if answer == "e":
            self.to_edit.add(path)
        self.stopped = answer == "q"
        return answer in "yae"

    def _show(self, it: Document, change: Change) -> None:
        cell, line = it.place(change.line)
        place = f"{'' if cell is None else f'cell {cell}:'}{line}:{change.column}"
        click.echo(f"\n{shown(it.source.path, self.current)}:{place}: {change.code} {change.message}")
        click.echo(_preview(it, change) or f"    {line_of(it.source, change.line).strip()}\n", nl=False)
        if change.safety is Safety.REVIEW:
            click.echo("    (for review: right in most scripts, look closely)")
        if change.required:
            click.echo("    (its training loop is migrated only with it)")

    def _answer(self) -> str:
        while True:
            try:
                answer = click.prompt("Apply this change [y,n,a,d,q,e,?]", prompt_suffix="? ", show_default=False)
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


def _preview(it: Document, change: Change) -> str:
    """What the change does on its own, as a diff without its head; empty when it makes sense only with the others."""
    from accel_migrate.apply import apply

    try:
        program = it.source.to_bytes(apply(it.source, change.edits))
    except (MigrateError, AssertionError):
        return ""
    alone = Outcome(it.source.path, it.source.path.name, Status.MIGRATED, parts=tuple(it.parts(program)))
    lines = unified(alone).decode(it.source.encoding, "replace").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(("--- ", "+++ ")))
