"""One file's trouble never costs another's result."""

from __future__ import annotations

import warnings
from pathlib import Path

import hypothesmith
import pytest
from accel_migrate import pipeline
from accel_migrate.analysis.trainings import script
from accel_migrate.analysis.trainings.groups import Group
from accel_migrate.plan import FileResult, Status
from accel_migrate.rules import RULES
from accel_migrate.source import Source
from hypothesis import given

from tests.migrate.properties.test_any_python import LOOP, STEADY, can_be_written


def deep(levels: int) -> str:
    """A file that runs, and may be too deep for a walk that calls itself."""
    return f"import torch\nx = {'-' * levels}1\nx.backward()\n"


def migrated(files: dict[str, str]) -> dict[str, FileResult]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = pipeline.migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()])
    return {result.path.name: result for result in results}


ALONE = migrated({"train.py": LOOP})["train.py"].after


@pytest.mark.parametrize("levels", [300, 900, 1500, 2900, 5000])
def test_a_file_that_is_nested_too_deeply_costs_nothing_but_itself(levels: int) -> None:
    done = migrated({"deep.py": deep(levels), "train.py": LOOP, "other.py": LOOP})
    assert done["deep.py"].status in (Status.FAILED, Status.UNCHANGED) and done["deep.py"].reason
    assert done["train.py"].after == done["other.py"].after == ALONE


@pytest.mark.parametrize("levels", [900, 1500])
def test_what_a_file_that_cannot_be_analysed_may_use_is_left(levels: int) -> None:
    done = migrated({"deep.py": "import train\n" + deep(levels), "train.py": LOOP, "other.py": LOOP})
    assert done["train.py"].after == LOOP.encode() and "deep.py" in done["train.py"].reason
    assert done["other.py"].after == ALONE


def test_a_crash_over_all_files_is_laid_to_the_one_that_crashes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = script.Roles

    def crashing(project, facts):  # type: ignore[no-untyped-def]
        if any(module.source.path.name == "strange.py" for module in project.modules):
            raise KeyError("strange")
        return whole(project, facts)

    monkeypatch.setattr(script, "Roles", crashing)
    done = migrated({"strange.py": LOOP, "train.py": LOOP})
    assert done["strange.py"].status is Status.FAILED and "internal error, KeyError" in done["strange.py"].reason
    assert done["train.py"].after == ALONE


def test_a_crash_in_one_loop_costs_that_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def crashing(context):  # type: ignore[no-untyped-def]
        if context.module.source.path.name == "strange.py":
            raise StopIteration
        return iter(())

    monkeypatch.setattr(pipeline, "RULES", (*RULES, type(RULES[0])("AM999", "x", "", "", crashing)))
    done = migrated({"strange.py": LOOP, "train.py": LOOP})
    assert done["strange.py"].status is Status.FAILED and "please report" in done["strange.py"].reason
    assert done["train.py"].after == ALONE


def test_a_crash_of_the_analysis_of_one_loop_costs_that_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = script.ParticipantFinder

    def crashing(*given):  # type: ignore[no-untyped-def]
        group = next(each for each in given if isinstance(each, Group))
        if group.backwards[0].module.source.path.name == "strange.py":
            raise StopIteration
        return whole(*given)

    monkeypatch.setattr(script, "ParticipantFinder", crashing)
    done = migrated({"strange.py": LOOP, "train.py": LOOP})
    assert done["strange.py"].status is Status.FAILED
    assert done["train.py"].after == ALONE


@pytest.mark.full
@STEADY
@given(hypothesmith.from_node())
def test_whatever_stands_beside_a_script_it_is_migrated_as_alone(noise: str) -> None:
    if can_be_written(noise):
        assert (
            migrated({"noise.py": f"import torch  # backward\n{noise}\n", "train.py": LOOP})["train.py"].after == ALONE
        )
