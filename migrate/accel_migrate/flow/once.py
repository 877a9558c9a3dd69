"""Answers that are asked for again and again, and depend on what is asked alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Key = TypeVar("Key")
Owner = TypeVar("Owner")
Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


def once(find: Callable[Concatenate[Owner, Asked], Answer]) -> Callable[Concatenate[Owner, Asked], Answer]:
    """Keep the answers of a function with its first argument, as long as that lives; nobody may change them.

    The first argument must not change either, and a shallow copy of it would take its answers along: make a new one.
    """

    @wraps(find)
    def known(owner: Owner, /, *asked: Asked.args, **named: Asked.kwargs) -> Answer:
        every: dict[Any, dict[Any, Answer]] | None = owner.__dict__.get("_answers")
        if every is None:
            every = owner.__dict__["_answers"] = {}
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
