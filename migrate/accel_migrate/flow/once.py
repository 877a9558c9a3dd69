"""Answers that are asked for again and again, and depend on what is asked alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Key = TypeVar("Key")
Owner = TypeVar("Owner")
Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")

# The insides of what leads back to itself, as answers often do to what they are kept with.
_CIRCLES: ContextVar[list[dict[Any, Any]] | None] = ContextVar("_CIRCLES", default=None)


@contextmanager
def kept_meanwhile() -> Iterator[None]:
    """What is kept meanwhile is let go of at the end, and leaves no circles that only the collector finds."""
    circles: list[dict[Any, Any]] = []
    token = _CIRCLES.set(circles)
    try:
        yield
    finally:
        _CIRCLES.reset(token)
        for inside in circles:
            inside.clear()


def leads_back(inside: dict[Any, Any]) -> None:
    """Have a mapping emptied where what is kept meanwhile is let go of."""
    circles = _CIRCLES.get()
    if circles is not None:
        circles.append(inside)


def once(find: Callable[Concatenate[Owner, Asked], Answer]) -> Callable[Concatenate[Owner, Asked], Answer]:
    """Keep the answers of a function with its first argument, as long as that lives; nobody may change them.

    The first argument must not change either, and a shallow copy of it would take its answers along: make a new one.
    """

    @wraps(find)
    def known(owner: Owner, /, *asked: Asked.args, **named: Asked.kwargs) -> Answer:
        every: dict[Any, dict[Any, Answer]] | None = owner.__dict__.get("_answers")
        if not every:
            every = owner.__dict__["_answers"] = {}
            leads_back(every)
        answers = every.get(find)
        if answers is None:
            answers = every[find] = {}
        key = (asked, *named.items()) if named else asked
        if key in answers:
            return answers[key]
        answer = answers[key] = find(owner, *asked, **named)
        return answer

    return known


class Answers(dict[Key, Answer]):
    """A mapping that finds what it does not hold yet; what is asked again is looked up without a call of Python."""

    def __init__(self, find: Callable[[Key], Answer]) -> None:
        self._find = find

    def __missing__(self, key: Key) -> Answer:
        answer = self[key] = self._find(key)
        return answer
