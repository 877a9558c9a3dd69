"""One script, unchanged, gives the same losses whoever starts its processes.

What needs a package of the system or Ray is skipped where it is missing; `make test-launchers` installs them and sets
LAUNCHERS_REQUIRED, with which a missing tool is a failure.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm import python

HERE = Path(__file__).parent / "launched"
TRAIN = str(HERE / "train.py")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def losses_of(text: str) -> tuple[int, list[float]]:
    """How many processes trained, and the loss of each step."""
    count, _, losses = text.strip().splitlines()[-1].partition(" processes: ")
    return int(count), [float(loss) for loss in losses.split()]


def run(*command: str, timeout: int = 300) -> str:
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def alone() -> list[float]:
    """The losses of one process, started with python."""
    count, losses = losses_of(run(python(), TRAIN))
    assert count == 1 and losses[-1] < losses[0] / 5
    return losses


@pytest.fixture(scope="module")
def together(alone: list[float]) -> list[float]:
    """The losses of two processes, started with accel launch: those of one process, but for the order of additions."""
    text = run(python(), "-m", "accel_runtime", "launch", "--cpu", "--num-processes", "2", TRAIN)
    count, losses = losses_of(text)
    assert count == 2
    assert losses == pytest.approx(alone, rel=1e-5)
    return losses


def needs(tool: str, found: object) -> None:
    if not found and "LAUNCHERS_REQUIRED" in os.environ:
        pytest.fail(f"{tool} is missing")
    if not found:
        pytest.skip(f"{tool} is not on this machine; make test-launchers installs it")


def test_torchrun(together: list[float]) -> None:
    torchrun = [python(), "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    assert losses_of(run(*torchrun, TRAIN)) == (2, together)


def test_srun_as_its_variables_describe_it(together: list[float], tmp_path: Path) -> None:
    # The host list names a machine that does not exist: on one machine the ranks meet on loopback.
    job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_JOB_NODELIST": "gpu[01-02]"}
    job |= {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_NODEID": "0"}
    tasks = []
    for rank in ("0", "1"):
        environment = {**ENVIRONMENT, **job, "SLURM_PROCID": rank, "SLURM_LOCALID": rank}
        command = [python(), TRAIN, str(tmp_path / "losses.txt")]
        tasks.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))
    assert [task.wait(timeout=300) for task in tasks] == [0, 0]
    assert losses_of((tmp_path / "losses.txt").read_text()) == (2, together)


def test_mpirun_and_mpirun_around_accel_launch(together: list[float]) -> None:
    needs("mpirun", shutil.which("mpirun"))
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable]
    assert losses_of(run(*mpirun, TRAIN)) == (2, together)
    assert losses_of(run(*mpirun, "-m", "accel_runtime", "launch", "--cpu", TRAIN)) == (2, together)


def test_ray_train(together: list[float], tmp_path: Path) -> None:
    with_ray = os.environ.get("RAY_PYTHON") or (importlib.util.find_spec("ray") and sys.executable)
    needs("ray", with_ray)
    run(str(with_ray), str(HERE / "ray_recipe.py"), str(tmp_path), TRAIN, str(tmp_path / "losses.txt"), timeout=300)
    assert losses_of((tmp_path / "losses.txt").read_text()) == (2, together)
