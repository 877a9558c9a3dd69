"""transformers.Trainer with this runtime in the place of Accelerate: trains, evaluates, saves and resumes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.peer_alias import write_alias
from tests.trainer_script import SCRIPT

ROOT = Path(__file__).parents[2]


def trained(folder: Path, processes: int, accumulation: int) -> dict[str, Any]:
    (folder / "train.py").write_text(SCRIPT.format(steps=accumulation))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    done = subprocess.run(
        [sys.executable, *(launcher if processes > 1 else []), "train.py"],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (write_alias(folder / "alias"), ROOT / "runtime"))),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


@pytest.mark.parametrize(
    ("processes", "accumulation", "steps"),
    [pytest.param(1, 1, 20, marks=pytest.mark.full), (1, 2, 10), (2, 1, 10)],
)
def test_trains_evaluates_saves_and_resumes(processes: int, accumulation: int, steps: int, tmp_path: Path) -> None:
    found = trained(tmp_path, processes, accumulation)
    assert found["package"] == "accel_runtime"
    assert found["steps"] == steps
    assert found["equal weights"], "a resumed run ends elsewhere"
    assert found["logs"][0] == found["logs"][1], "a resumed run logs something else"
    assert found["evaluated"][1] == found["plain"][1]
    assert found["evaluated"][0] == pytest.approx(found["plain"][0], abs=1e-6)
