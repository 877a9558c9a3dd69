"""What cannot be migrated is one line on standard error, with the path; the exit code is 2 and nothing is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LATE_FUTURE = b"""import torch

from __future__ import print_function

net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.zeros(8, 2))
for batch in loader:
    net(batch).sum().backward()
    optimizer.step()
"""
GOOD = b"import torch\n\nprint(torch.__version__)\n"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.py", None, "missing.py: does not exist"),
        ("wrong.py", b"import torch\n\ndef train(:\n    pass\n", "wrong.py:3: does not parse"),
        ("old.py", b"import torch\nprint 'epoch'\n", "old.py:2: does not parse"),
        ("future.py", LATE_FUTURE, "future.py: line 3: does not compile: from __future__ imports must occur"),
        ("binary.py", b"\x7fELF\x02\x01\x01\x00torch\x00", "binary.py: is a binary file"),
        ("latin.py", b"import torch\n# \xe9t\xe9\n", "latin.py:2: is not text"),
        ("folder", None, "folder: holds no Python file"),
    ],
)
def test_is_told_in_one_line(name: str, content: bytes | None, says: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_bytes(b"torch")
    (tmp_path / "good.py").write_bytes(GOOD)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    command = [sys.executable, "-m", "accel_migrate", name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"accel-migrate: {says}") and done.stderr.count("\n") == 1
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
