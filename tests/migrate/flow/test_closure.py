"""All that steps lead to, each thing once."""

from __future__ import annotations

from accel_migrate.flow.closure import closure, descent

STEPS = {"a": "bc", "b": "d", "c": "db", "d": "a"}


def test_gives_each_thing_once_and_the_nearest_first() -> None:
    assert [*closure("a", lambda each: STEPS[each])] == ["a", "b", "c", "d"]


def test_takes_no_steps_beyond_the_most() -> None:
    assert [*closure("a", lambda each: STEPS[each], most=2)] == ["a", "b", "c"]


def test_is_answered_as_far_as_it_is_asked() -> None:
    asked: list[str] = []

    def steps(each: str) -> str:
        asked.append(each)
        return STEPS[each]

    assert next(closure("a", steps)) == "a"
    assert asked == []


def test_descends_in_the_order_of_reading() -> None:
    assert [*descent("a", lambda each: STEPS[each])] == ["a", "b", "d", "c"]
