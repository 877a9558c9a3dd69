"""A run that was stopped anywhere goes on to the bit as if it had not been."""

import os
from itertools import product
from pathlib import Path

import pytest

from tests.resuming import BATCHES, EPOCHS, Case, assert_same_rest, train

EVERYWHERE = "CHAOS" in os.environ  # `make chaos`
MOMENTS = [(0, 1), (1, 3), (1, BATCHES - 1), (EPOCHS - 1, 0)]


@pytest.mark.parametrize(("accumulation", "stream"), list(product((1, 3, 4), (False, True))))
def test_a_resumed_run_is_the_control_run_to_the_bit(accumulation: int, stream: bool, tmp_path: Path) -> None:
    case = Case(accumulation=accumulation, stream=stream)
    control = train(case, tmp_path)
    for moment in MOMENTS:
        project = tmp_path / f"{moment}"
        stopped = train(case, project, stop_at=moment)
        assert stopped.losses == control.losses[: len(stopped.losses)]
        assert_same_rest(control, train(case, project, resume=True))


@pytest.mark.parametrize("stream", [False, True])
def test_with_workers_too(stream: bool, tmp_path: Path) -> None:
    for accumulation in (1, 3) if EVERYWHERE else (3,):
        case = Case(workers=2, accumulation=accumulation, stream=stream)
        control = train(case, tmp_path)
        for moment in MOMENTS if EVERYWHERE else [(1, 3)]:
            project = tmp_path / f"{accumulation} {moment}"
            train(case, project, stop_at=moment)
            assert_same_rest(control, train(case, project, resume=True))
