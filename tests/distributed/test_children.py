"""Processes that a rank starts: they have its variables, and are not of its world."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.warm import python

LAUNCH = ["-m", "accel_runtime", "launch", "--cpu", "--num-processes", "2"]

# Each worker imports the script, and with it makes an Accelerator.
SPAWNS = """
import torch
from accel_runtime import Accelerator
from torch.utils.data import DataLoader, Dataset

accelerator = Accelerator(cpu=True)


class Numbers(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.tensor([float(accelerator.num_processes), float(index)])


def main():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Numbers(), batch_size=2, num_workers=1, multiprocessing_context="spawn")
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    seen = []
    for batch in loader:
        accelerator.backward(model(batch).square().mean())
        optimizer.step()
        optimizer.zero_grad()
        seen += accelerator.gather_for_metrics(batch).tolist()
    worlds, samples = zip(*seen)
    accelerator.print(accelerator.num_processes, set(worlds), sorted(samples) == list(range(16)))
    accelerator.end_training()


if __name__ == "__main__":
    main()
"""


def test_a_spawned_worker_that_imports_the_script_does_not_join_the_ranks(tmp_path: Path) -> None:
    (tmp_path / "spawns.py").write_text(SPAWNS)
    done = subprocess.run(
        [python(), *LAUNCH, "--timeout", "60", str(tmp_path / "spawns.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2 {1.0} True\n"
