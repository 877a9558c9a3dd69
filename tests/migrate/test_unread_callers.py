"""A file that is not Python as it stands may call what takes other arguments now."""

from __future__ import annotations

from pathlib import Path

from accel_migrate.outcome import Outcome
from accel_migrate.plan import Status
from accel_migrate.unread_callers import calls_to_check

BEFORE = b"def train(model): ...\ndef show(model): ...\nclass Trainer:\n    def __init__(self): ...\n"
AFTER = b"def train(model, accelerator): ...\ndef show(model): ...\nclass Trainer:\n    def __init__(self, accelerator): ...\n"


def _said(folder: Path, text: str, status: Status = Status.MIGRATED) -> str:
    unread = folder / "figures.py"
    unread.write_text("%matplotlib inline\n" + text)
    return calls_to_check(unread, [Outcome(folder / "engine.py", "engine.py", status, before=BEFORE, after=AFTER)])


def test_names_what_it_may_call_with_the_old_arguments(tmp_path: Path) -> None:
    assert "train() of engine.py" in _said(tmp_path, "import engine\nengine.train(net)\n")
    assert "Trainer() of engine.py" in _said(tmp_path, "from engine import Trainer\n")


def test_is_silent_about_what_is_called_as_before(tmp_path: Path) -> None:
    assert not _said(tmp_path, "import engine\nengine.show(net)\n")
    assert not _said(tmp_path, "import other\nother.train(net)\n")
    assert not _said(tmp_path, "import engine\nengine.train(net)\n", Status.UNCHANGED)
