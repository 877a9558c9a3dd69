"""What a proof comes to, with runs that are written down instead of started."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from accel_migrate.outcome import Decision, Finding
from accel_migrate.outcome import Outcome as FileOutcome
from accel_migrate.plan import Safety, Status
from accel_migrate.proof import data, page, text
from accel_migrate.proof.blame import Texts
from accel_migrate.proof.check import Quantity, Result
from accel_migrate.proof.prove import Proof, Subject
from accel_migrate.proof.runs import Ended, Job, Runner, Target
from accel_migrate.proof.scratch import Project
from accel_migrate.proof.verdict import Outcome, Verdict

from tests.migrate.proof.traces import trace


def finding(code: str) -> Finding:
    return Finding(code, 1, 1, "", Safety.NOTE, Decision.NOTE)


def verdict(
    tmp_path: Path,
    ran: Sequence[str] = ("train.py",),
    processes: int = 1,
    code: str = "",
    error: str = "",
    also: str = "",
    more: Sequence[str] = (),
    seconds: float = 0.0,
    stands: int = 0,
) -> Verdict:
    """Of a migrated train.py and more, where every process of every run does the same and goes through these files.

    Processes that share out each batch end with `error`, and such as have one each with `also`. The original takes
    `seconds`, and the migrated script has no end on `stands` processes.
    """

    def start(job: Job) -> Ended:
        if stands == job.processes and "migrated" in job.folder.parent.name:
            return Ended(None, "", "")
        failure = error if job.split else also
        if job.processes > 1 and failure:
            return Ended(1, "", f"Traceback:\n{failure}\n")
        for rank in range(job.processes):
            events = [{"kind": e.kind, "file": e.file, "line": e.line, **e.facts} for e in trace().events]
            events[-1]["ran"] = list(ran)
            (job.folder / f"{rank}-1.jsonl").write_text("\n".join(map(json.dumps, events)))
        return Ended(0, "", "", seconds)

    (tmp_path / "project").mkdir()
    runner = Runner(Project(tmp_path / "project"), tmp_path / "runs", "python", 5, 60.0, start=start)
    outcome = FileOutcome(Path("train.py"), "train.py", Status.MIGRATED, findings=(finding(code),) if code else ())
    texts = tuple(Texts(outcome, file, "", "") for file in ("train.py", *more))
    subject = Subject("main.py", Target("main.py"), texts, {}, {})
    return Proof(subject, runner, processes, lambda what: None).verdict()


def test_a_run_that_does_not_come_by_the_migrated_files_proves_nothing(tmp_path: Path) -> None:
    found = verdict(tmp_path, ["main.py", "helpers.py"])
    assert found.outcome is Outcome.NOT_RUN
    assert "none of the migrated files is run by main.py" in found.problem


def test_a_run_that_comes_by_one_of_them_is_compared(tmp_path: Path) -> None:
    assert verdict(tmp_path, ["main.py", "train.py"]).outcome is Outcome.PROVEN


def test_migrated_files_that_were_not_run_are_named(tmp_path: Path) -> None:
    found = verdict(tmp_path, ["main.py", "train.py"], more=("evaluate.py",))
    assert found.outcome is Outcome.PROVEN and found.not_run == ("evaluate.py",)
    sentence = "Not run, so nothing is proven about them: evaluate.py"
    assert sentence in text.render(found) and sentence in page.render(found)
    assert data.render(found)["not_run"] == ["evaluate.py"]


def test_processes_that_each_train_on_all_differ(tmp_path: Path) -> None:
    found = verdict(tmp_path, processes=2)
    assert found.broken is not None and found.broken.quantity is Quantity.SAMPLES


def test_processes_that_each_train_on_all_do_not_differ_where_the_codemod_says_so(tmp_path: Path) -> None:
    found = verdict(tmp_path, processes=2, code="AM805")
    samples = found.check(Quantity.SAMPLES, 2)
    assert found.outcome is Outcome.PROVEN
    assert samples is not None and samples.result is Result.NOT_COMPARED and "AM805" in samples.note


WRONG_SIZE = "IndexError: The shape of the mask [16, 16] does not match the shape of the tensor [8, 8]"


def test_a_script_that_counts_on_whole_batches_is_run_with_a_batch_for_each(tmp_path: Path) -> None:
    found = verdict(tmp_path, processes=2, error=WRONG_SIZE)
    losses = found.check(Quantity.LOSSES, 2)
    assert found.outcome is Outcome.PROVEN
    assert losses is not None and losses.result is Result.NOT_COMPARED and "counts on whole batches" in losses.note
    assert found.check(Quantity.WEIGHTS, 2) is not None


@pytest.mark.parametrize(("error", "also"), [(WRONG_SIZE, WRONG_SIZE), ("NameError: name 'model' is not defined", "")])
def test_a_failure_that_whole_batches_do_not_explain_stays_one(tmp_path: Path, error: str, also: str) -> None:
    found = verdict(tmp_path, processes=2, error=error, also=also)
    assert found.broken is not None and found.broken.quantity is Quantity.ENDING


@pytest.mark.parametrize(("seconds", "outcome"), [(40.0, Outcome.NOT_RUN), (2.0, Outcome.DIFFERS)])
def test_a_migrated_script_that_is_out_of_time_need_not_stand_still(
    tmp_path: Path, seconds: float, outcome: Outcome
) -> None:
    found = verdict(tmp_path, seconds=seconds, stands=1)
    assert found.outcome is outcome, found
    assert outcome is Outcome.DIFFERS or ("no end in 60 s" in found.problem and "took 40 s" in found.problem)


@pytest.mark.parametrize(("seconds", "outcome"), [(40.0, Outcome.PROVEN), (2.0, Outcome.DIFFERS)])
def test_several_processes_that_are_out_of_time_are_not_compared(
    tmp_path: Path, seconds: float, outcome: Outcome
) -> None:
    found = verdict(tmp_path, processes=2, seconds=seconds, stands=2)
    assert found.outcome is outcome, found
    assert outcome is Outcome.DIFFERS or any("took 40 s" in check.note for check in found.checks)
