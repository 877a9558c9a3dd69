"""What a proof comes to, with runs that are written down instead of started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from accel_migrate.outcome import Outcome as FileOutcome
from accel_migrate.proof.blame import Texts
from accel_migrate.proof.prove import Proof, Subject
from accel_migrate.proof.runs import Ended, Job, Laboratory, Target
from accel_migrate.proof.scratch import Project
from accel_migrate.proof.verdict import Outcome, Verdict

from tests.migrate.proof.traces import trace


def verdict(tmp_path: Path, ran: list[str]) -> Verdict:
    """Of a migrated train.py, where every run goes through these files."""

    def start(job: Job) -> Ended:
        events = [{"kind": e.kind, "file": e.file, "line": e.line, **e.facts} for e in trace().events]
        events[-1]["ran"] = ran
        (job.folder / "0-1.jsonl").write_text("\n".join(map(json.dumps, events)))
        return Ended(0, "", "")

    (tmp_path / "project").mkdir()
    laboratory = Laboratory(Project(tmp_path / "project"), tmp_path / "runs", "python", 5, 60.0, start=start)
    texts = Texts(cast(FileOutcome, None), "train.py", "", "")
    subject = Subject("main.py", Target("main.py"), (texts,), {}, {})
    return Proof(subject, laboratory, 1, lambda what: None).verdict()


def test_a_run_that_does_not_come_by_the_migrated_files_proves_nothing(tmp_path: Path) -> None:
    found = verdict(tmp_path, ["main.py", "helpers.py"])
    assert found.outcome is Outcome.NOT_RUN
    assert "none of the migrated files is run by main.py" in found.problem


def test_a_run_that_comes_by_one_of_them_is_compared(tmp_path: Path) -> None:
    assert verdict(tmp_path, ["main.py", "train.py"]).outcome is Outcome.PROVEN
