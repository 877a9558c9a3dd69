"""A notebook of thirty cells with magics is migrated, touches only the cells it must, and trains as it did."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

CELLS = r"""
--- text
# A small classifier
Trained on noise, to have something to compare.
--- code
%load_ext autoreload
%autoreload 2
--- code
import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
--- code
!echo torch is here
--- text
## Settings
--- code
epochs = 2  # enough to see it fall
learning_rate = 0.1
--- code
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
device
--- code
torch.manual_seed(3);
--- text
## Data
--- code
inputs = torch.randn(64, 8)
targets = (inputs.sum(1) > 0).long()
--- code
inputs.shape, targets.shape
--- code
train_set = TensorDataset(inputs[:48], targets[:48])
test_set = TensorDataset(inputs[48:], targets[48:])
--- code
train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
--- code
test_loader = DataLoader(test_set, batch_size=8)
--- code
%%bash
echo shell cells are left alone
--- text
## Model
--- code
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x):
        return self.layers(x)
--- code
model = Net().to(device)  # the model
--- code
sum(p.numel() for p in model.parameters())
--- code
criterion = nn.CrossEntropyLoss()
--- code
optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
--- code
where = %pwd
if where:
    %time math.sqrt(2)
--- text
## Training
--- code
%%time
for epoch in range(epochs):
    model.train()
    for x, y in train_loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        print(f'loss {loss.item():.17g}')
--- code
1 + 1
--- text
## Test
--- code
model.eval()
correct = 0
with torch.no_grad():
    for x, y in test_loader:
        x, y = x.to(device), y.to(device)
        correct += (model(x).argmax(1) == y).sum().item()
print(f'correct {correct} of {len(test_set)}')
--- code
torch.manual_seed?
--- code
print('torch', torch.__version__)
--- text
The end. Prêt ✓
"""


def notebook() -> str:
    cells: list[dict[str, Any]] = []
    for number, (kind, source) in enumerate(re.findall(r"^--- (\w+)\n(.*?)\n(?=---|\Z)", CELLS, re.M | re.S), 1):
        cell: dict[str, Any] = {"cell_type": "code" if kind == "code" else "markdown", "id": f"cell{number}"}
        cell |= {"metadata": {}, "source": source.splitlines(keepends=True)}
        if kind == "code":
            cell |= {"execution_count": number, "outputs": []}
        cells.append(cell)
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    whole = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def printed(path: Path) -> list[str]:
    """What a run of the notebook prints about its training."""
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": path.parent}}).execute()
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    text = "".join(output.get("text", "") for output in outputs)
    return re.findall(r"^(?:loss|correct) .*$", text, re.MULTILINE)


def test_a_notebook_of_thirty_cells_trains_as_it_did(tmp_path: Path) -> None:
    before, after = tmp_path / "before.ipynb", tmp_path / "after.ipynb"
    for path in (before, after):
        path.write_text(notebook())
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    command = [sys.executable, "-m", "accel_migrate", "--output-format", "json", str(after)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr + done.stdout
    (file,) = json.loads(done.stdout)["files"]
    assert file["status"] == "migrated", file
    assert "notebook_launcher" in " ".join(note["message"] for note in file["notes"])

    old, new = json.loads(before.read_text()), json.loads(after.read_text())
    changed = [number for number, (a, b) in enumerate(zip(old["cells"], new["cells"], strict=True), 1) if a != b]
    assert set(changed) <= {change["cell"] for change in file["changes"]} | {3}, "only cells that the report names"
    assert {18, 24} <= set(changed) and len(changed) <= 9
    untouched = [cell for number, cell in enumerate(old["cells"], 1) if number not in changed]
    assert all(json.dumps(cell["source"][-1:], ensure_ascii=False)[1:-1] in after.read_text() for cell in untouched)

    assert printed(after) == printed(before) != []
