"""The recorder is loaded from outside, waits for torch, and lets through what it stands in front of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from accel_migrate.proof.record import traces
from accel_migrate.proof.runs import Job, Target, start

SCRIPT = """\
import site_was_here
import sys
assert "torch" not in sys.modules, "nothing is imported before the script asks for it"
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
while True:
    try:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    except BaseException:
        print("caught")
"""


def job(tmp_path: Path, script: str, **settings: object) -> Job:
    copy, folder = tmp_path / "copy", tmp_path / "journal"
    copy.mkdir()
    folder.mkdir()
    (copy / "train.py").write_text(script)
    common = {"folder": str(folder), "copy": str(copy), "project": "/nowhere", "data": [], "steps": 3, "seed": 0}
    plain = {"on_cpu": False, "still": False, "nudged": False, "stand_ins": "", "observe": False}
    return Job(sys.executable, Target("train.py"), copy, folder, {**common, **plain, **settings}, 120)


def test_a_script_is_cut_after_its_steps_whatever_it_catches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = tmp_path / "site"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import sys, types\nsys.modules['site_was_here'] = types.ModuleType('x')\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(hidden), os.environ.get("PYTHONPATH", "")]))
    ended = start(job(tmp_path, SCRIPT))
    assert (ended.code, ended.output) == (0, ""), ended.errors
    (trace,) = traces(tmp_path / "journal")
    assert [event.line for event in trace.of("loss")] == [9, 9, 9]
    assert trace.rates == ((0.5,), (0.5,), (0.5,))
    assert trace.was_cut and trace.parameters
    assert trace.ran == {"train.py"}  # and nothing that torch calls a file and is not one
    assert all(loss.forms == ("summed",) for loss in trace.losses)


def test_weights_can_be_moved_by_rounding_after_each_step(tmp_path: Path) -> None:
    script = (
        "import torch\nw = torch.nn.Parameter(torch.tensor([1.0, 2.0]))\nopt = torch.optim.SGD([w], lr=0.0)\n"
        "w.sum().backward()\nopt.step()\nprint((w - torch.tensor([1.0, 2.0])).tolist())\n"
    )
    ended = start(job(tmp_path, script, nudged=True))
    assert ended.output == f"[{2**-23}, {-(2**-23)}]\n", ended.errors


LOADED = """\
import torch
from torch.utils.data import DataLoader, DistributedSampler
rows = torch.arange(8.0).unsqueeze(1)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step(batch):
    model(batch).sum().backward()
    optimizer.step()
"""


def test_batches_of_a_pass_that_was_left_before_another_one_trained_are_no_samples_of_its_loss(tmp_path: Path) -> None:
    script = """
loader = DataLoader(rows, batch_size=2)
for seen in loader:
    if seen.max() > 4:
        break
for batch in loader:
    step(batch)
"""
    ended = start(job(tmp_path, LOADED + script))
    (trace,) = traces(tmp_path / "journal")
    assert [loss.samples for loss in trace.losses] == [(0, 1), (2, 3), (4, 5)], ended.errors


def test_a_batch_that_alone_was_asked_for_is_trained_on(tmp_path: Path) -> None:
    start(job(tmp_path, LOADED + "for _ in range(3):\n    step(next(iter(DataLoader(rows, batch_size=2))))\n"))
    (trace,) = traces(tmp_path / "journal")
    assert [loss.samples for loss in trace.losses] == [(0, 1)] * 3


def test_a_distributed_sampler_of_one_process_draws_as_a_loader_that_shuffles(tmp_path: Path) -> None:
    script = """
found = []
for settings in ({"sampler": DistributedSampler(rows, 1, 0)}, {"shuffle": True}):
    torch.manual_seed(0)
    found.append([batch.tolist() for batch in DataLoader(rows, batch_size=2, **settings)])
print(found[0] == found[1])
"""
    ended = start(job(tmp_path, LOADED + script))
    assert ended.output == "True\n", ended.errors


def test_data_that_is_only_read_cannot_be_opened_for_writing(tmp_path: Path) -> None:
    data = tmp_path / "points.csv"
    data.write_text("kept")
    ended = start(job(tmp_path, f"open({str(data)!r}).read()\nopen({str(data)!r}, 'w')", data=[str(data)]))
    assert ended.code == 1 and "is named by --data, and what is named so is only read" in ended.errors
    assert data.read_text() == "kept"


def test_a_line_that_was_cut_short_by_a_kill_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "0-1.jsonl").write_text('{"kind": "end", "file": "", "line": 0}\n{"kind": "lo')
    (trace,) = traces(tmp_path)
    assert [event.kind for event in trace.events] == ["end"]


def test_the_recorder_needs_no_installed_package() -> None:
    recorder = Path(sys.modules[Job.__module__].__file__ or "").parent / "recorder"
    settings = '{"folder": "/", "copy": "/nowhere", "project": "/nowhere", "data": [], "seed": 0}'
    environment = {"PYTHONPATH": str(recorder), "MIGRATION_PROOF": settings}
    code = "import sys; print('accel_migrate.proof.recorder.watch' in sys.modules, 'accel_migrate' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "True False\n", done.stderr
