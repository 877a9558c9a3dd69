"""A file that is not Python as it stands may call what takes other arguments now."""

from __future__ import annotations

from pathlib import Path

from accel_migrate.outcome import Outcome
from accel_migrate.plan import Status
from accel_migrate.unread_callers import calls_to_check, with_tests_to_change

from tests.migrate.conftest import Run

BEFORE = b"def train(model): ...\ndef show(model): ...\nclass Trainer:\n    def __init__(self): ...\n"
AFTER = b"def train(model, accelerator): ...\ndef show(model): ...\nclass Trainer:\n    def __init__(self, accelerator): ...\n"


def _said(folder: Path, text: str, status: Status = Status.MIGRATED) -> str:
    unread = folder / "figures.py"
    unread.write_text("%matplotlib inline\n" + text)
    return calls_to_check(unread, [Outcome(folder / "engine.py", "engine.py", status, before=BEFORE, after=AFTER)])


def test_names_what_it_may_call_with_the_old_arguments(tmp_path: Path) -> None:
    assert "train() of engine.py" in _said(tmp_path, "import engine\nengine.train(net)\n")
    assert "Trainer() of engine.py" in _said(tmp_path, "from engine import Trainer\n")
    assert "train() of engine.py" in _said(
        tmp_path, "from parts import (\n    data,\n    engine,\n)\nengine.train(net)\n"
    )
    assert "train() of engine.py" in _said(tmp_path, '  "import os, engine\\n",\n  "engine.train(net)\\n"\n')


def test_is_silent_about_what_is_called_as_before(tmp_path: Path) -> None:
    assert not _said(tmp_path, "import engine\nengine.show(net)\n")
    assert not _said(tmp_path, "import other\nother.train(net)\n")
    assert not _said(tmp_path, "engine = 1\ntrain = table.train\n")
    assert not _said(tmp_path, "import engine\nengine.train(net)\n", Status.UNCHANGED)


def test_tests_that_name_it_are_said_at_the_function(tmp_path: Path) -> None:
    asked = tmp_path / "test_engine.py"
    asked.write_text("from engine import Trainer, show\n\ndef test_it():\n    show(Trainer())\n")
    migrated = Outcome(Path("engine.py"), "engine.py", Status.MIGRATED, before=BEFORE, after=AFTER)
    (note,) = with_tests_to_change(migrated, [asked]).findings
    assert (note.code, note.line) == ("AM103", 4)
    assert note.message.startswith("Trainer() takes other arguments now") and "test_engine.py" in note.message
    assert not with_tests_to_change(migrated, []).findings


ENGINE = """
import torch
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def fit(net, rows, device):
    net = net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in rows:
        loss = torch.nn.functional.mse_loss(net(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


if __name__ == "__main__":
    fit(torch.nn.Linear(2, 1), DataLoader(data, batch_size=4), device)
"""
TESTED = """
import torch
from engine import fit


def test_it():
    assert fit(torch.nn.Linear(2, 1), [(torch.ones(1, 2), torch.ones(1, 1))], "cpu")
"""


def test_what_a_test_hands_over_leaves_no_loop(command: Run) -> None:
    Path("engine.py").write_text(ENGINE)
    Path("tests").mkdir()
    Path("tests/test_engine.py").write_text(TESTED)
    done = command(".", "--color", "never")
    assert "engine.py: migrated" in done.out
    assert "AM103 [note] fit() takes other arguments now, and tests call it as it was (test_engine.py)" in done.out
    assert Path("tests/test_engine.py").read_text() == TESTED
