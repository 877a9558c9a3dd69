"""Answers are found once for each question, and kept with what they are about."""

from __future__ import annotations

from accel_migrate.flow.once import Answers, kept_meanwhile, once


class Owner:
    def __init__(self) -> None:
        self.asked: list[str] = []


@once
def answer(owner: Owner, question: str) -> str:
    owner.asked.append(question)
    return question.upper()


@once
def other(owner: Owner, question: str) -> str:
    return question * 2


def test_finds_each_answer_once():
    owner = Owner()
    assert [answer(owner, "a"), answer(owner, "b"), answer(owner, "a")] == ["A", "B", "A"]
    assert owner.asked == ["a", "b"]


def test_keeps_functions_and_owners_apart():
    first, second = Owner(), Owner()
    assert (answer(first, "a"), other(first, "a"), answer(second, "a")) == ("A", "aa", "A")
    assert second.asked == ["a"]


def test_a_mapping_finds_what_it_does_not_hold_once():
    asked: list[str] = []

    def find(question: str) -> int | None:
        asked.append(question)
        return len(question) or None

    known = Answers(find)
    assert [known["aa"], known[""], known["aa"], known[""]] == [2, None, 2, None]
    assert asked == ["aa", ""]


def test_lets_go_of_what_was_kept_meanwhile():
    owner = Owner()
    with kept_meanwhile():
        assert [answer(owner, "a"), answer(owner, "a")] == ["A", "A"]
    assert owner.asked == ["a"]
    answer(owner, "a")
    assert owner.asked == ["a", "a"]


def test_keeps_answers_from_before():
    owner = Owner()
    answer(owner, "a")
    with kept_meanwhile():
        answer(owner, "b")
    answer(owner, "b")
    assert owner.asked == ["a", "b"]
