"""What was prepared for as long as the script holds it: a cross validation builds a model anew for each fold."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """One thing as it was given to `prepare` and as it was returned."""

    before: Any
    after: Any
    among: list[Any]  # those of its kind
    number: int  # in the order in which all were prepared
    again: (
        Callable[[Any], Any] | None
    )  # what to return in place of `after` where the script holds only what is behind it


@dataclass(frozen=True, slots=True, eq=False)
class Loosened:
    """The same, held by nobody here."""

    before: Callable[[], Any]
    behind: Callable[[], Any]
    after: Callable[[], Any]
    among: list[Any]
    number: int
    again: Callable[[Any], Any] | None

    @classmethod
    def of(cls, held: Held) -> Loosened:
        behind = vars(held.after).get("behind", held.before)
        references = (reference(held.before), reference(behind), reference(held.after))
        return cls(*references, held.among, held.number, held.again)

    def held(self) -> Held | None:
        """Held again, unless the script has let go of it."""
        after = self.after()
        if after is None and self.again is not None and (behind := self.behind()) is not None:
            after = self.again(behind)
        return None if after is None else Held(self.before(), after, self.among, self.number, self.again)


def reference(thing: Any) -> Callable[[], Any]:
    """A weak reference; to what cannot have one, as an optimizer of a library with slots, a strong one."""
    try:
        return weakref.ref(thing)
    except TypeError:
        return lambda: thing
