"""Checkpoints from Accelerate to here and back, where Accelerate is installed: training goes on as if nothing had changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(find_spec("accelerate") is None, reason="accelerate is not installed")

ROOT = Path(__file__).parents[2]
SCRIPT = """\
import json, sys
import torch
from torch.utils.data import DataLoader, TensorDataset

package, start, stop, load, save, told = sys.argv[1:]
if package == "accelerate":
    from accelerate import Accelerator
else:
    from accel_runtime import Accelerator
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
inputs = torch.randn(48, 4, generator=torch.Generator().manual_seed(1))
loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=4)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
counter = torch.nn.Linear(1, 1)
accelerator.register_for_checkpointing(counter)
if load != "-":
    accelerator.load_state(load)
losses = []
for step, (values, wanted) in enumerate(loader):
    if int(start) <= step < int(stop):
        loss = torch.nn.functional.mse_loss(model(values), wanted)
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        counter.weight.data += 1
        losses.append(loss.item())
if save != "-":
    accelerator.save_state(save)
with open(told, "w") as file:
    json.dump({"losses": losses, "rate": optimizer.param_groups[0]["lr"], "seen": counter.weight.item()}, file)
"""


class Runs:
    """Runs the script in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "script.py").write_text(SCRIPT)

    def run(self, package: str, start: int, stop: int, load: str = "-", save: str = "-") -> object:
        self.python("script.py", package, str(start), str(stop), load, save, "told")
        return json.loads((self.folder / "told").read_text())

    def python(self, *arguments: str) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "runtime"),
            "OMP_NUM_THREADS": "1",
            "ACCELERATE_USE_CPU": "true",
        }
        subprocess.run([sys.executable, *arguments], cwd=self.folder, env=environment, check=True, timeout=250)


def test_a_run_changes_sides_and_trains_on_to_the_bit(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.run("accelerate", 0, 6, save="theirs")
    runs.run("accel_runtime", 0, 6, save="ours")
    control = runs.run("accelerate", 6, 12, load="theirs")
    assert runs.run("accel_runtime", 6, 12, load="theirs") == control
    runs.python("-m", "accel_runtime", "to-accelerate", "ours", "converted")
    assert sorted(file.name for file in (tmp_path / "converted").iterdir()) == sorted(
        file.name for file in (tmp_path / "theirs").iterdir()
    )
    assert runs.run("accelerate", 6, 12, load="converted") == control
