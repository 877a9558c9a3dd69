"""The first lines of a run on many processes, and what is refused there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.warm import python

LAUNCH = ["-m", "accel_runtime", "launch", "--cpu", "--num-processes", "2"]

TRAINS = """
import sys
import torch
from accel_runtime import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(gradient_accumulation_steps=2)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = accelerator.prepare(DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8))
if "prepared" in sys.argv:
    model, optimizer = accelerator.prepare(model, optimizer)
for (batch,) in loader:
    accelerator.backward(model(batch).square().mean())
    optimizer.step()
    optimizer.zero_grad()
accelerator.end_training()
"""

PLAIN = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 4)).sum().backward()
optimizer.step()
torch.save(model.state_dict(), "model.pt")
"""


def launched(folder: Path, text: str, *arguments: str, by: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(text)
    command = [by or python(), *LAUNCH, "train.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def test_a_run_says_once_how_it_is_spread(tmp_path: Path) -> None:
    done = launched(tmp_path, TRAINS, "prepared")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("accel: 2 processes on 1 machine, cpu, ddp, fp32, global batch 32") == 1
    assert "drift" not in done.stderr


def test_a_model_that_nobody_prepared_is_said_to_drift_apart(tmp_path: Path) -> None:
    done = launched(tmp_path, TRAINS)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("no model that trains was prepared: each of 2 processes trains a copy of its own") == 1


def test_a_script_whose_processes_cannot_meet_is_refused_at_its_first_step(tmp_path: Path) -> None:
    done = launched(tmp_path, PLAIN, by=sys.executable)  # it is refused by what watches the import of torch
    assert done.returncode == 1
    assert "train.py trains on 2 processes that know nothing of each other" in done.stderr
    assert "accel-migrate train.py" in done.stderr
    # Where the script stands says enough: no line of torch or of this package.
    assert done.stderr.count('  File "') == 1 and 'File "train.py", line 6, in <module>' in done.stderr
    assert not (tmp_path / "model.pt").exists()
