from __future__ import annotations

import pytest
from accel_migrate.errors import MigrateError
from accel_migrate.selection import Selection, selection


@pytest.mark.parametrize(
    ("select", "ignore", "code", "allowed"),
    [
        ((), (), "AM101", True),
        (("AM1",), (), "AM101", True),
        (("AM1",), (), "AM201", False),
        ((), ("AM1",), "AM101", False),
        (("AM1",), ("AM101",), "AM101", False),
        (("AM101",), ("AM1",), "AM101", True),
        (("all",), ("AM2",), "AM201", False),
        ((), ("all",), "AM101", False),
    ],
)
def test_the_longer_match_wins(select: tuple[str, ...], ignore: tuple[str, ...], code: str, allowed: bool) -> None:
    assert Selection(select, ignore).allows(code) is allowed


def test_codes_come_in_lists_and_in_any_case() -> None:
    assert selection(["am101, AM2"], [], ["AM101", "AM201"]) == Selection(("AM101", "AM2"))


def test_an_unknown_code_names_the_nearest() -> None:
    with pytest.raises(MigrateError, match=r"no rule AM102; did you mean AM101\?"):
        selection(["AM102"], [], ["AM101", "AM999"])
