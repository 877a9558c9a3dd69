"""Chance by name, and sentences of it: the same in every run, and apart from what the script draws."""

from __future__ import annotations

import random

WORDS = (
    "a", "the", "good", "bad", "film", "was", "very", "never", "we", "saw", "plot", "of", "in", "and", "long", "end",
)  # fmt: skip


def dice(*names: object) -> random.Random:
    return random.Random(repr(names))


def sentence(numbers: random.Random) -> str:
    return " ".join(numbers.choices(WORDS, k=numbers.randrange(4, 24)))
