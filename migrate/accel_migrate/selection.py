"""Which rules may act: --select and --ignore name codes, beginnings of codes, or `all`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from accel_migrate.errors import MigrateError


@dataclass(frozen=True, slots=True)
class Selection:
    """Codes or their beginnings; an empty `select` is every rule, and the longer match wins."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def allows(self, code: str) -> bool:
        chosen = max((len(prefix) for prefix in self.select if _covers(prefix, code)), default=-1)
        ignored = max((len(prefix) for prefix in self.ignore if _covers(prefix, code)), default=-1)
        return (ignored < 0 and not self.select) or chosen > ignored

    def ignores(self, code: str) -> bool:
        """Whether the code was turned off by name, so that even a note about it is unwanted."""
        return not Selection((), self.ignore).allows(code) and not self.allows(code)


def _covers(prefix: str, code: str) -> bool:
    return prefix == "all" or code.startswith(prefix)


def selection(select: Iterable[str], ignore: Iterable[str], known: Iterable[str]) -> Selection:
    """A checked selection; an unknown code is an error that names the nearest known one."""
    known = tuple(known)
    return Selection(tuple(_checked(select, known)), tuple(_checked(ignore, known)))


def _checked(given: Iterable[str], known: tuple[str, ...]) -> Iterable[str]:
    for text in given:
        for word in text.split(","):
            if not (word := word.strip()):
                continue
            code = word if word == "all" else word.upper()
            if code != "all" and not any(each.startswith(code) for each in known):
                raise MigrateError(unknown("rule", code, known))
            yield code


def unknown(kind: str, word: str, known: Iterable[str]) -> str:
    """A sentence for a word that does not exist, with the nearest one that does."""
    nearest = difflib.get_close_matches(word, tuple(known), n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(known)}"
    return f"there is no {kind} {word}; {hint}"
