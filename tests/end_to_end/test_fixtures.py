"""The promise, case by case: the migrated script trains as the original did, and evaluates the same on two."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cases import Case, all_cases
from tests.end_to_end.runs import Run, run

RUNNABLE = [case for case in all_cases() if case.runs]


def in_folder(base: Path, name: str) -> Path:
    folder = base / name
    folder.mkdir()
    return folder


def ended_well(runs: list[Run]) -> list[Run]:
    for result in runs:
        assert not result.error, result.error
    return runs


def original(case: Case, folder: Path, frozen: bool = False, machine: int = 0) -> list[Run]:
    return run(case.script("before"), case.arguments, folder, frozen=frozen, launched=case.launched, machine=machine)


@pytest.mark.parametrize("case", [case for case in RUNNABLE if case.losses == "equal"], ids=lambda case: case.name)
def test_losses_are_equal_to_the_bit_on_one_process(case: Case, tmp_path: Path) -> None:
    (before,) = ended_well(original(case, in_folder(tmp_path, "before")))
    (after,) = ended_well(run(case.script("after"), case.arguments, in_folder(tmp_path, "after")))
    assert before.losses, "the original trains nothing"
    assert after.losses == before.losses
    assert after.output == before.output


@pytest.mark.parametrize(
    ("case", "processes"),
    [(case, 2) for case in RUNNABLE if case.two] + [(case, 3) for case in RUNNABLE if case.three],
    ids=lambda said: getattr(said, "name", said),
)
def test_processes_train_and_evaluate_as_one(case: Case, processes: int, tmp_path: Path) -> None:
    many = in_folder(tmp_path, "many")
    ranks = ended_well(run(case.script("after"), case.arguments, many, processes=processes, frozen=True))
    assert all(rank.losses for rank in ranks), "a process trained nothing"
    if "--prints" in case.options:
        assert not ranks[1].output.strip(), "what is printed is printed once"
    if case.figures:
        (before,) = ended_well(original(case, in_folder(tmp_path, "one"), frozen=True))
        expected = re.findall(case.figures, before.output)
        assert expected, "the original prints no figure of the kind that is looked for"
        assert re.findall(case.figures, ranks[0].output) == expected


@pytest.mark.parametrize("case", [case for case in RUNNABLE if case.gpus], ids=lambda case: case.name)
def test_on_a_machine_with_gpus_nothing_parts_ways(case: Case, tmp_path: Path) -> None:
    (before,) = ended_well(original(case, in_folder(tmp_path, "before"), machine=case.gpus))
    (after,) = ended_well(run(case.script("after"), case.arguments, in_folder(tmp_path, "after"), machine=case.gpus))
    assert before.losses, "the original trains nothing"
    assert after.losses == before.losses
    assert after.output == before.output
