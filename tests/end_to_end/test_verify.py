"""`accel-migrate --verify`: every case that runs is proven; and the command, as a person starts it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from accel_migrate.proof import text
from accel_migrate.proof.check import Quantity, Result
from accel_migrate.proof.prove import Proof, Subject
from accel_migrate.proof.runs import Runner, Target
from accel_migrate.proof.scratch import Project
from accel_migrate.proof.verdict import Outcome, Verdict

from tests.cases import Case, all_cases
from tests.end_to_end import forked

CASES = [case for case in all_cases() if case.runs and case.losses == "equal" and case.two]
WHOLE = bool(os.environ.get("VERIFY_ALL"))  # to the end of every script, as `make test-verify` does
STEPS = 10_000 if WHOLE else 6
# What stops the proof of a step for every number of processes, or is different; all other cases are equal.
NO_LOADER = "no step from a batch of a loader"
SHARED_BY_TWO_ALONE = "was not shared equally by two numbers of processes"
PROOFS = {
    "amp_context_variable": NO_LOADER,
    "autoencoder_summed_loss": "the gradient is scaled by 1/N (binary_cross_entropy at",
    "batch_cropped_by_helper": "another one on other numbers of processes",  # numpy crops, which nothing traces
    "class_weights_in_criterion": "is a weighted mean",
    "cuda_calls_legacy": "randperm",
    "ddp_environment": NO_LOADER,
    "ddp_rank_handed_on": "native_batch_norm",
    "ddp_spawn_or_call_cuda": "arange",
    "ddp_torchrun": "lr of the optimizer is",
    "distributional_q_learning": NO_LOADER,
    "gan_with_samples": "native_batch_norm",
    "lengths_stay_on_the_cpu": "is a weighted mean",
    "main_guard_globals": "mkldnn_rnn_layer",
    "recurrent_open_file": NO_LOADER,
    "regression_by_hand": NO_LOADER,
    "sequence_lbfgs": NO_LOADER,
    "shared_engine": SHARED_BY_TWO_ALONE,
    "weight_of_no_model": "arange",  # each sample against the others of its batch
}
# Why losses on two processes are not compared, as far as the cases go.
KNOWN_REASONS = (
    "no loader",
    "a partial one",
    "random numbers",
    "batch normalisation",
    "loss is",
    "needs a batch size",
    "other passes",
    "against each other",
    "learning rate",
    "altered while they are loaded",
)


def proven(case: Case, folder: Path) -> Verdict:
    """The verdict about a case, with processes that are forked from this one."""
    project = folder / "project"
    project.mkdir()
    states: dict[str, dict[Path, bytes]] = {}
    for state in ("before", "after"):
        files = sorted((case.folder / state).rglob("*.py")) if case.is_project else [case.script(state)]
        names = [file.relative_to(case.folder / state) if case.is_project else Path("train.py") for file in files]
        states[state] = {project / name: file.read_bytes() for name, file in zip(names, files)}
    if case.is_project:
        shutil.copytree(case.folder / "before", project, dirs_exist_ok=True)
    else:
        (project / "train.py").write_bytes(case.script("before").read_bytes())
    target = Target(case.entry or "train.py", arguments=case.arguments)
    runner = Runner(Project(project), folder / "scratch", "", STEPS, 300, True, forked.start)
    subject = Subject(case.name, target, (), {}, states["after"])
    return Proof(subject, runner, 2, lambda what: None).verdict()


# test_fixtures trains every case; here, but for `make test-verify`, one for each thing that is said and a few of the others.
TELLING = {why: name for name, why in PROOFS.items()}.values()
# A process that stands for two draws the noise of one rank alone, so that the proof calls a right result different.
OWN_NOISE = ("ddp_gpu_by_rank",)
SILENT = [case.name for case in CASES if case.name not in (*PROOFS, *OWN_NOISE)]
TRIED = [c for c in CASES if c.name not in OWN_NOISE and (WHOLE or c.name in (*TELLING, *SILENT[::24]))]


@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name)
def test_a_case_is_proven_on_one_process_and_on_two(case: Case, tmp_path: Path) -> None:
    verdict = proven(case, tmp_path)
    assert verdict.outcome is Outcome.PROVEN, text.render(verdict)
    losses, many = verdict.check(Quantity.LOSSES, 1), verdict.check(Quantity.LOSSES, 2)
    assert losses is not None and losses.result is Result.EQUAL and losses.agreed
    assert many is not None
    assert verdict.step is not None
    assert PROOFS.get(case.name, "") in verdict.step.why and bool(verdict.step.why) is (case.name in PROOFS)
    if many.result is Result.NOT_COMPARED:
        assert any(reason in many.note for reason in KNOWN_REASONS), many.note


SCRIPT = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()
torch.manual_seed(3)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
x = torch.randn(64, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
for inputs, targets in loader:
    inputs, targets = inputs.to(device), targets.to(device)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
with open("out.txt", "w") as file:
    file.write(f"lr {args.lr}")
"""


def accel_migrate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "accel_migrate", *arguments]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder.parent / "state")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text(SCRIPT)
    return work


def test_what_is_proven_is_written_and_nothing_else_is_touched(folder: Path) -> None:
    done = accel_migrate(folder, "train.py", "--write-if-proven", "--steps", "5", "--", "--lr", "0.2")
    assert done.returncode == 0, done.stdout + done.stderr
    first, *_ = done.stdout.splitlines()
    assert first.startswith("train.py: migrated and written, 5 of 5 losses equal; on 2 processes within ")
    assert "running the migrated script on 2 processes" in done.stderr
    assert "AM801 [note] on N processes each step consumes N batches" in done.stdout + done.stderr
    assert "accelerator.backward(loss)" in (folder / "train.py").read_text()
    assert [path.name for path in folder.iterdir()] == ["train.py"], "what the script writes stays in its copy"


def test_gradients_of_zero_for_weights_without_a_part_are_no_losses_of_the_script(folder: Path) -> None:
    spare = SCRIPT.replace("nn.Linear(4, 1)", "nn.ModuleList([nn.Linear(4, 1), nn.Linear(4, 1)])")
    (folder / "train.py").write_text(spare.replace("model(inputs)", "model[0](inputs)"))
    done = accel_migrate(folder, "train.py", "--verify", "--steps", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    first, *_ = done.stdout.splitlines()
    assert first.startswith("train.py: migrated, 4 of 4 losses equal; on 2 processes within ")
    assert first.endswith("a step is equal for every N")


WITHOUT_ITS_DATA = """
import numpy as np
import torch
import wandb

wandb.init(project="points")
data = torch.utils.data.TensorDataset(torch.from_numpy(np.load("data/x.npy")), torch.from_numpy(np.load("data/y.npy")))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        wandb.log({"loss": loss.item()})
"""


@pytest.mark.parametrize(("processes", "more"), [("1", "\n"), pytest.param("2", "; on 2 ", marks=pytest.mark.full)])
def test_a_script_without_its_data_gpu_and_packages_is_proven_on_stand_ins_and_says_so(
    processes: str, more: str, folder: Path
) -> None:
    (folder / "train.py").write_text(WITHOUT_ITS_DATA)
    shapes = ("--shape", "data/x.npy=32x4", "--shape", "data/y.npy=32:int64")
    done = accel_migrate(
        folder, "train.py", "--verify", "--stand-ins", *shapes, "--steps", "4", "--processes", processes
    )
    assert done.returncode == 0, done.stdout + done.stderr
    files = "data/x.npy made up, 32x4, data/y.npy made up, 32"
    proof = f"train.py: migrated, 4 of 4 losses equal on stand-ins ({files}, wandb left out)"
    assert done.stdout.startswith(proof + more), done.stdout
    assert [path.name for path in folder.iterdir()] == ["train.py"], "what is made up stays in the copy"


def test_a_module_of_a_package_is_proven_and_told_to_programs_and_browsers(folder: Path) -> None:
    package = folder / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text(SCRIPT)
    command = ("-m", "package.train", "--verify", "--steps", "3", "--output-format", "json", "--html", "proof.html")
    done = accel_migrate(folder, *command, "--processes", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    proof = json.loads(done.stdout)["proof"]
    assert (proof["outcome"], proof["script"]) == ("proven", "package.train")
    assert [len(run["values"]) for run in proof["losses"]] == [3, 3]
    assert "no difference" in (folder / "proof.html").read_text()
    assert (package / "train.py").read_text() == SCRIPT, "--verify alone writes nothing"


def test_a_notebook_is_proven_as_the_program_of_its_cells(folder: Path) -> None:
    head, tail = SCRIPT.replace("args = parser.parse_args()", "args = parser.parse_args([])").split("model = ")
    cells = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": source}
        for source in (f"%matplotlib inline\n{head}", f"model = {tail}")
    ]
    (folder / "book.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}))
    done = accel_migrate(folder, "book.ipynb", "--verify", "--steps", "3", "--processes", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("book.ipynb: migrated, 3 of 3 losses equal\n")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("model.cuda()", "the original needs a GPU, and this machine has none; --on-cpu runs it on the CPU"),
        (
            "import urllib.request; urllib.request.urlopen('http://data.invalid/x')",
            "the original wants the network to reach data.invalid:80; bring the data into the project folder first",
        ),
        ("raise ValueError('three is too many')", "the original ends with ValueError: three is too many"),
        ("import time; time.sleep(600)", "the original had no end in 8 s"),
    ],
    ids=["GPU", "network", "error", "time"],
)
def test_a_script_that_cannot_run_says_what_it_wanted(folder: Path, line: str, sentence: str) -> None:
    (folder / "train.py").write_text(SCRIPT.replace("optimizer = ", f"{line}\noptimizer = "))
    limit = ("--timeout", "8") if "sleep" in line else ()
    done = accel_migrate(folder, "train.py", "--verify", *limit)
    assert done.returncode == 2
    assert done.stdout.startswith(f"train.py: not proven, {sentence}"), done.stdout + done.stderr


def test_there_is_nothing_to_prove_where_nothing_changes(folder: Path) -> None:
    (folder / "train.py").write_text("import torch\nprint(torch.ones(1))\n")
    done = accel_migrate(folder, "train.py", "--verify")
    assert done.returncode == 2
    assert "nothing was migrated (no training loop), so there is nothing to prove" in done.stdout
