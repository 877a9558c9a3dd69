"""Answers that are asked for again and again, and depend on what is asked alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Owner = TypeVar("Owner")
Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


def once(find: Callable[Concatenate[Owner, Asked], Answer]) -> Callable[Concatenate[Owner, Asked], Answer]:
    """Keep the answers of a function with its first argument, as long as that lives; nobody may change them.

    The first argument must not change either, and a shallow copy of it would take its answers along: make a new one.
    """

    @wraps(find)
    def known(owner: Owner, /, *asked: Asked.args, **named: Asked.kwargs) -> Answer:
        every: dict[Any, dict[Any, Answer]] = owner.__dict__.setdefault("_answers", {})
        answers = every.setdefault(find, {})
        key = (asked, *named.items()) if named else asked
        if key not in answers:
            answers[key] = find(owner, *asked, **named)
        return answers[key]

    return known
