"""A migration that is broken on purpose is caught, and the line that was broken is named first."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from accel_migrate.options import Options
from accel_migrate.proof.blame import Texts
from accel_migrate.proof.command import migrated
from accel_migrate.proof.prove import Proof, Subject
from accel_migrate.proof.runs import Ended, Job, Runner, Target
from accel_migrate.proof.scratch import Project
from accel_migrate.proof.verdict import Outcome, Verdict
from accel_migrate.run import terms_of

from tests.end_to_end import forked

SCRIPT = """\
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

dropout = float(sys.argv[1])
torch.manual_seed(5)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
x = torch.randn(113, 6)
y = (x.sum(1) > 0).long()
train_loader = DataLoader(TensorDataset(x[:80], y[:80]), batch_size=16, shuffle=True)
test_loader = DataLoader(TensorDataset(x[80:], y[80:]), batch_size=8)

layer = nn.Dropout(dropout) if dropout else nn.Identity()
model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), layer, nn.Linear(32, 2)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.9)
criterion = nn.CrossEntropyLoss()

for epoch in range(2):
    model.train()
    for inputs, targets in train_loader:
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        scheduler.step()
    model.eval()
    correct, total = 0, 0
    with torch.no_grad():
        for inputs, targets in test_loader:
            inputs, targets = inputs.to(device), targets.to(device)
            outputs = model(inputs)
            correct += (outputs.argmax(1) == targets).sum().item()
            total += len(targets)
    print(f"epoch {epoch}: {correct} right of {total}")
"""

PREPARE = "model, optimizer, train_loader, test_loader, scheduler"
BACKWARD = "accelerator.backward(loss)"
GATHER = "outputs, targets = accelerator.gather_for_metrics((outputs, targets))"


@dataclass(frozen=True)
class Break:
    """What is done to the migrated text, and a piece of the line of the original that must be named for it."""

    name: str
    old: str
    new: str
    named: str
    dropout: str = "0"


BREAKS = (
    Break("prepare left out", "    {line:accelerator.prepare(}\n", "", "criterion ="),
    Break("loader left out of prepare", "train_loader, test_loader", "test_loader", "criterion ="),
    # With the optimizer prepared the model would be averaged all the same: what is stepped is.
    Break("model and optimizer left out of prepare", "model, optimizer, scheduler, train", "train", "criterion ="),
    Break(
        "backward doubled",
        BACKWARD,
        f"accelerator.backward(loss, retain_graph=True)\n        {BACKWARD}",
        "loss.backward",
    ),
    Break("loss scaled", BACKWARD, "accelerator.backward(loss / 2)", "loss.backward"),
    Break(
        "scheduler stepped twice", "scheduler.step()", "scheduler.step()\n        scheduler.step()", "scheduler.step"
    ),
    Break("evaluation counts padding", "gather_for_metrics", "gather", "outputs = model"),
    Break("evaluation of one process only", GATHER, "pass", "outputs = model"),
    Break("gradients not zeroed", "        optimizer.zero_grad()\n", "", "zero_grad"),
    Break("clipping lost", "        accelerator.clip_grad_norm_(model.parameters(), 0.1)\n", "", "clip_grad"),
    Break("learning rate changed", "lr=0.5", "lr=0.25", "lr=0.5"),
    Break(
        "data sharded twice",
        "batch_size=16, shuffle=True)",
        "batch_size=16, sampler=torch.utils.data.DistributedSampler(x[:80], accelerator.num_processes, "
        "accelerator.process_index))",
        "batch_size=16",
    ),
    Break("shuffle lost", "batch_size=16, shuffle=True", "batch_size=16", "batch_size=16"),
    Break("model left in eval", "    model.train()\n", "", "model.train()", dropout="0.3"),
    Break("seed set later", "torch.manual_seed(5)\n", "torch.rand(1)\n", "manual_seed"),
    Break(
        "step on one process only",
        "        optimizer.step()\n",
        "        if accelerator.is_main_process:\n            optimizer.step()\n",
        "optimizer.step",
    ),
)


class Remembering:
    """Starts a job once: a run of the same text under the same conditions repeats itself."""

    def __init__(self, memory: Path) -> None:
        self.memory = memory
        self.endings: dict[str, Ended] = {}

    def __call__(self, job: Job) -> Ended:
        text = (job.copy / job.target.script).read_text()
        key = f"{abs(hash((text, job.target.arguments, job.processes, job.split, job.settings['still'])))}"
        if key in self.endings:
            shutil.copytree(self.memory / key, job.folder, dirs_exist_ok=True)
        else:
            self.endings[key] = forked.start(job)
            shutil.copytree(job.folder, self.memory / key)
        return self.endings[key]


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Remembering:
    return Remembering(tmp_path_factory.mktemp("memory"))


def proven(folder: Path, change: Break | None, remembering: Remembering, monkeypatch: pytest.MonkeyPatch) -> Verdict:
    """The verdict about the script, with its migration broken."""
    project = folder / "project"
    project.mkdir()
    (project / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(project)
    (outcome,) = migrated([Path("train.py")], Options(), terms_of(Options()))
    text = outcome.after.decode()
    if change is not None:
        broken = _broken(text, change)
        assert broken != text
        text = broken
    target = Target("train.py", arguments=(change.dropout if change else "0",))
    texts = (Texts(outcome, "train.py", SCRIPT, text),)
    runner = Runner(Project(project), folder / "scratch", "", 100, 120, start=remembering)
    subject = Subject("train.py", target, texts, {}, {project / "train.py": text.encode()})
    return Proof(subject, runner, 2, lambda what: None).verdict()


def _broken(text: str, change: Break) -> str:
    if change.old.strip().startswith("{line:"):
        piece = change.old.strip()[len("{line:") : -1]
        return "".join(line for line in text.splitlines(keepends=True) if piece not in line)
    return text.replace(change.old, change.new)


def test_the_script_as_it_is_migrated_is_proven(
    tmp_path: Path, remembering: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = proven(tmp_path, None, remembering, monkeypatch)
    assert verdict.outcome is Outcome.PROVEN
    assert not verdict.not_compared


@pytest.mark.parametrize("change", BREAKS, ids=lambda change: change.name)
def test_a_break_is_caught_and_its_line_is_named_first(
    change: Break, tmp_path: Path, remembering: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = proven(tmp_path, change, remembering, monkeypatch)
    assert verdict.outcome is Outcome.DIFFERS
    first = verdict.suspects[0]
    assert change.named in SCRIPT.splitlines()[first.line - 1], verdict.suspects
