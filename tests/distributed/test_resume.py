"""Resuming on real processes: to the bit on as many as saved, and every sample once on any other number."""

from collections import Counter
from pathlib import Path

import pytest

from tests.distributed.worlds import in_world
from tests.resuming import Case, assert_same_rest, train

CASES = {
    2: [
        Case(accumulation=3, processes=2),
        Case(accumulation=3, stream=True, processes=2),
        Case(workers=2, processes=2),
    ],
    3: [Case(accumulation=3, processes=3), Case(stream=True, processes=3)],
}


@pytest.mark.parametrize("size", CASES)
def test_as_many_processes_go_on_to_the_bit(size: int, tmp_path: Path) -> None:
    def stories():
        told = []
        for number, case in enumerate(CASES[size]):
            project = tmp_path / str(number)
            control = train(case, project)
            train(case, project, stop_at=(1, 3))
            told.append((control, train(case, project, resume=True)))
        return told

    for told in in_world(size, stories):
        for control, resumed in told:
            assert_same_rest(control, resumed)


def test_every_sample_is_seen_once_when_the_number_of_processes_changes(tmp_path: Path) -> None:
    for stream in (False, True):
        project = tmp_path / str(stream)
        # 48 rows: 2 processes take 2 x 3 x 2, then 1 takes 6, then 3 share the 30 that are left.
        case = Case(processes=4, stream=stream)
        seen = in_world(2, lambda: train(case, project, stop_at=(0, 2)))  # noqa: B023
        seen += in_world(1, lambda: train(case, project, stop_at=(0, 8), resume=True))  # noqa: B023
        seen += in_world(3, lambda: train(case, project, stop_at=(0, 99), resume=True))  # noqa: B023
        counts = Counter(row for story in seen for rows in story.rows for row in rows)
        assert counts == dict.fromkeys(range(48), 1)
