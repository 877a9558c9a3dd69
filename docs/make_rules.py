"""Writes rules.md from the texts of the rules themselves: `make docs`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from accel_migrate.catalogue import Explained, explained

HERE = Path(__file__).parent

OPENING = """\
# Rules

Everything that `accel-migrate` finds has a code. `accel-migrate --explain AM301` prints the same text as this page,
which is made from the rules by `make docs`.

`safe` changes train as before and are applied. `review` changes are right in most scripts; `--unsafe-fixes` applies
them. A `note` edits nothing: it says what a person should look at. The changes of one training loop belong together:
either all that it cannot do without are applied, or the loop is left as it was and AM901 says why. AM95x are conditions
that every result is checked for before it is shown or written: a loop whose result would break one is left as it was.
"""

CHAPTERS = {
    "AM1": "Setting up",
    "AM2": "Devices",
    "AM3": "Gradients and precision",
    "AM4": "Evaluation",
    "AM5": "Saving and loading",
    "AM6": "What is done once",
    "AM7": "Distribution written by hand",
    "AM8": "What changes with more than one process",
    "AM9": "What was left, and advice",
}


def page() -> str:
    """The whole text of rules.md."""
    return "\n".join([OPENING, *_contents(), *_chapters()])


def _contents() -> Iterator[str]:
    yield "| code | name | safety | what it does |"
    yield "| --- | --- | --- | --- |"
    for rule in explained():
        yield f"| [{rule.code}](#{_anchor(rule)}) | {rule.name} | {rule.safety} | {_cell(rule.summary)} |"
    yield ""


def _chapters() -> Iterator[str]:
    for start, rules in groupby(explained(), key=lambda rule: rule.code[:3]):
        yield f"## {CHAPTERS[start]}\n"
        for rule in rules:
            yield from _section(rule)


def _section(rule: Explained) -> Iterator[str]:
    yield f"### {rule.code} {rule.name}\n"
    yield f"**{_sentence(rule.summary)}** ({rule.safety})\n"
    yield f"{rule.why}\n"
    titles = ("Refused", "Right") if rule.code.startswith("AM95") else ("Before", "After")
    for title, example in zip(titles, (rule.example_before, rule.example_after)):
        if example.strip():
            yield f"{title}:\n"
            yield f"```python\n{example.strip()}\n```\n"


def _anchor(rule: Explained) -> str:
    """As GitHub makes one of a heading."""
    return f"{rule.code} {rule.name}".lower().replace(" ", "-")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    (HERE / "rules.md").write_text(page())
