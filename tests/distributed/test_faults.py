"""What a run does when it is asked to end, and when its workers die."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from tests.warm import python

LAUNCH = ["-m", "accel_runtime", "launch", "--cpu", "--num-processes", "2", "--show-ranks", "all"]
KILLS, PATIENCE = (20, 1800) if "CHAOS" in os.environ else (2, 300)

STOP = """
import os, sys
import torch
from accel_runtime import Accelerator

accelerator = Accelerator(cpu=True, project_dir=sys.argv[1])
ready = open(sys.argv[2], "w")
for step in range(10_000_000):
    stop = accelerator.should_stop()
    if step == 0:
        ready.write(f"{os.getpid()}\\n")
        ready.close()
    if stop:
        accelerator.save_state()
        break
print(f"rank {accelerator.process_index} stopped at {step}", flush=True)
"""

TRAIN = """
import json, os, sys, threading
from pathlib import Path
import torch
from torch import nn
from accel_runtime import Accelerator, ProjectConfiguration

project, steps_file = Path(sys.argv[1]), Path(sys.argv[2])
config = ProjectConfiguration(project, automatic_checkpoint_naming=True, total_limit=2)
accelerator = Accelerator(cpu=True, project_config=config)
torch.manual_seed(3)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(32, 4))
loader = torch.utils.data.DataLoader(data, 2, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
resumed = accelerator.load_state("latest", missing_ok=True)
step = resumed.step if resumed else 0
deadly = json.loads(os.environ.get("DEADLY", "{}"))  # by step: the rank to kill, and seconds until then
for epoch in range(resumed.epoch if resumed else 0, 12):
    for (inputs,) in loader:
        loss = model(inputs).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        rank, delay = deadly.get(str(step), (None, 0))
        if rank == accelerator.process_index:
            try:
                os.close(os.open(project / f"killed_{step}", os.O_CREAT | os.O_EXCL))
                threading.Timer(delay, os.kill, (os.getpid(), 9)).start()  # while the training goes on
            except FileExistsError:
                pass
        if step % 2 == 0:
            accelerator.save_state()
if accelerator.is_main_process:
    torch.save(accelerator.get_state_dict(model), steps_file)
"""


@pytest.fixture
def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    ("number", "whom"),
    [("SIGTERM", "launcher"), pytest.param("SIGUSR1", "launcher", marks=pytest.mark.full), ("SIGTERM", "rank")],
)
def test_all_ranks_stop_at_one_step_save_and_exit_143(number: str, whom: str, tmp_path: Path, environment) -> None:
    (tmp_path / "stop.py").write_text(STOP)
    os.mkfifo(tmp_path / "ready")
    command = [
        sys.executable,
        *LAUNCH,
        "--max-restarts",
        "1",
        str(tmp_path / "stop.py"),
        str(tmp_path / "run"),
        str(tmp_path / "ready"),
    ]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        with open(tmp_path / "ready") as ready:
            ranks = [int(line) for line in ready]
        os.kill(run.pid if whom == "launcher" else ranks[0], signal.Signals[number])
        output, errors = run.communicate(timeout=60)
    assert run.returncode == 143, errors
    steps = {line.split()[-1] for line in output.splitlines() if "stopped at" in line}
    assert len(steps) == 1, output
    assert (tmp_path / "run" / "checkpoints" / "checkpoint_0" / "manifest.json").exists()
    assert not [pid for pid in ranks if psutil.pid_exists(pid)]


def test_a_failure_on_the_way_out_is_told_as_one(tmp_path: Path, environment) -> None:
    (tmp_path / "stop.py").write_text(STOP.replace("accelerator.save_state()", 'raise RuntimeError("disk is gone")'))
    os.mkfifo(tmp_path / "ready")
    command = [python(), *LAUNCH, str(tmp_path / "stop.py"), str(tmp_path / "run"), str(tmp_path / "ready")]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as run:
        with open(tmp_path / "ready") as ready:
            ready.read()
        run.terminate()
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 1, errors
    assert "failed first: RuntimeError: disk is gone" in errors


def test_one_process_alone_exits_143_too(tmp_path: Path, environment) -> None:
    os.mkfifo(tmp_path / "ready")
    command = [sys.executable, "-c", STOP, str(tmp_path / "run"), str(tmp_path / "ready")]
    run = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    with open(tmp_path / "ready") as ready:
        ready.read()
    run.terminate()
    output, _ = run.communicate(timeout=60)
    assert "rank 0 stopped at" in output
    assert run.returncode == 143


@pytest.mark.timeout(2 * PATIENCE)
def test_killed_workers_cost_nothing_but_time(tmp_path: Path, environment) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    # Whom and when is drawn: within a step, a save or a meeting of the processes.
    drawn = random.Random(11)
    deadly = {str(step): (drawn.randrange(2), 0.02 * drawn.random()) for step in range(3, 3 + 4 * KILLS, 4)}
    weights = []
    for name, kills in (("control", {}), ("killed", deadly)):
        project, result = tmp_path / name, tmp_path / f"{name}.pt"
        project.mkdir()
        command = [python(), *LAUNCH, "--max-restarts", "25", str(tmp_path / "train.py"), str(project), str(result)]
        variables = {**environment, "DEADLY": json.dumps(kills)}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        assert len(list(project.glob("killed_*"))) == len(kills)
        weights.append(torch.load(result))
    control, killed = weights
    assert all(torch.equal(control[name], killed[name]) for name in control)
    print(f"{len(deadly)} kills of workers, final weights equal")
