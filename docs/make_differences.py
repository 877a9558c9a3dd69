"""Writes the last section of docs/runtime/differences.md from the table of what is not here."""

from __future__ import annotations

from pathlib import Path

from accel_runtime.arguments import INSTEAD
from accel_runtime.unsupported import ARGUMENTS, FLAGS, MEMBERS, MODULES, NAMES

PAGE = Path(__file__).parent / "runtime" / "differences.md"
HEADING = "## Not here\n"
INTRODUCTION = """
Names, modules, arguments, attributes and flags of Accelerate that this runtime has not; each says the same where it is
used. This section is made by `make docs`.

| not here | use |
| --- | --- |
"""


def page() -> str:
    """The whole page, with its last section made anew."""
    kept, _, _ = PAGE.read_text().partition(HEADING)
    return kept + HEADING + INTRODUCTION + "".join(f"| {names} | {text} |\n" for text, names in _rows().items())


def _rows() -> dict[str, str]:
    """What to use -> all that it stands for."""
    arguments = {f"{kind}({name}=...)": text for kind, texts in ARGUMENTS.items() for name, text in texts.items()}
    answers = {
        **{f"accel_runtime.{module}": text for module, text in MODULES.items()},
        **NAMES,
        **{f"Accelerator({name}=...)": text for name, text in INSTEAD.items()},
        **arguments,
        **{f"accelerator.{name}": text for name, text in MEMBERS.items()},
        **{f"{flag}..." if flag.endswith("-") else flag: text for flag, text in FLAGS.items()},
    }
    rows: dict[str, list[str]] = {}
    for name, text in answers.items():
        rows.setdefault(text.replace("|", "\\|"), []).append(f"`{name}`")
    return {text: ", ".join(names) for text, names in rows.items()}


if __name__ == "__main__":
    PAGE.write_text(page())
