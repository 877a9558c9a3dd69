"""A library of hundreds of connected files is looked at file by file."""

from __future__ import annotations

from pathlib import Path

from accel_migrate import pipeline
from accel_migrate import project as project_of_files
from accel_migrate.discover import Found
from accel_migrate.plan import Status
from accel_migrate.source import Source

ENGINE = b"""import torch


def train(model, loader, optimizer, device):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
MAIN = b"""import torch
from engine import train

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(2, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 2), torch.ones(8, 1)))
train(model, loader, optimizer, device)
"""


def project() -> list[Source]:
    return [Source.from_bytes(Path("main.py"), MAIN), Source.from_bytes(Path("engine.py"), ENGINE)]


def test_files_of_a_project_change_together():
    assert [result.status for result in pipeline.migrate(project())] == [Status.MIGRATED, Status.MIGRATED]


def test_files_of_a_library_are_looked_at_alone(monkeypatch):
    monkeypatch.setattr(pipeline, "LARGEST_PIECE", 1)
    main, engine = pipeline.migrate(project())
    assert main.status is engine.status is Status.UNCHANGED
    assert "caller of train()" in engine.reason


def test_files_of_a_library_are_tasks_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(project_of_files, "LARGEST_PIECE", 2)
    for number in range(4):
        (tmp_path / f"part{number}.py").write_text(f"import torch\nimport part{(number + 1) % 4}\n")
    for name, other in (("one", "two"), ("two", "one")):
        (tmp_path / f"{name}.py").write_text(f"import torch\nimport {other}\n")
    files = [Found(path, tmp_path, named=False) for path in sorted(tmp_path.glob("*.py"))]
    tasks = project_of_files.tasks(files, lambda paths: map(project_of_files.scan, paths))
    assert [[path.stem for path in task.sources] for task in tasks] == [
        ["one", "two"], ["part0"], ["part1"], ["part2"], ["part3"],
    ]  # fmt: skip


def test_a_loader_may_be_built_in_another_file():
    data = b"import torch\n\n\ndef load(points):\n    return torch.utils.data.DataLoader(points, batch_size=4)\n"
    built = b"loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 2), torch.ones(8, 1)))"
    main = MAIN.replace(built, b"loader = load(points())").replace(
        b"import train\n", b"import train\nfrom data import load\n"
    )
    sources = [Source.from_bytes(Path("data.py"), data), Source.from_bytes(Path("main.py"), main), project()[1]]
    assert [result.status for result in pipeline.migrate(sources)][1:] == [Status.MIGRATED, Status.MIGRATED]


def test_the_file_of_the_loop_says_why_it_is_left_wherever_the_trouble_is():
    main = MAIN.replace(b"optimizer = torch.optim.SGD(model.parameters(), lr=0.1)", b"from apex import amp\namp.init()")
    main = main.replace(b"optimizer, device", b"torch.optim.SGD(model.parameters(), lr=0.1), device")
    sources = [Source.from_bytes(Path("main.py"), main), project()[1]]
    assert all(result.status is Status.UNCHANGED for result in pipeline.migrate(sources))
    assert pipeline.migrate(sources)[1].reason not in ("", "no training loop")
