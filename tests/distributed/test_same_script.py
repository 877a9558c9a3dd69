"""One migrated script, unchanged, on every strategy and in several precisions: flags alone decide."""

import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from accel_runtime import resolve

from tests.warm import python

SCRIPT = Path(__file__).parents[2] / "fixtures" / "train_and_evaluate" / "after.py"
FLAGS = {
    "ddp": ["--mixed-precision", "no"],
    "fsdp": ["--mixed-precision", "bf16", "--wrap-layers", "Linear"],
    "deepspeed": ["--mixed-precision", "bf16", "--zero-stage", "3"],
}
AVAILABLE = [name for name in FLAGS if name in resolve.STRATEGIES and (name != "deepspeed" or find_spec("deepspeed"))]


def losses_and_points(strategy, folder):
    launch = [python(), "-m", "accel_runtime", "launch", "--cpu", "--num-processes", "2", "--strategy", strategy]
    done = subprocess.run(
        [*launch, *FLAGS[strategy], str(SCRIPT), "--epochs", "2"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"^epoch \d: loss (\S+)$", done.stdout, re.MULTILINE)]
    return losses, re.findall(r"on (\d+) points", done.stdout)


def test_the_same_script_trains_alike_on_every_strategy(tmp_path):
    seen = {strategy: losses_and_points(strategy, tmp_path) for strategy in AVAILABLE}
    expected, _ = seen["ddp"]
    assert len(expected) == 2
    for strategy, (losses, points) in seen.items():
        assert losses == pytest.approx(expected, rel=2e-2), strategy
        assert points == ["333", "333"], strategy
