"""The command in an empty folder, around a codemod that is small enough to know by heart."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from accel_migrate import pipeline
from accel_migrate.cli import main

from tests.migrate import fake_codemod


@dataclass(frozen=True)
class Done:
    code: int
    raw: bytes  # standard output
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()


Run = Callable[..., Done]


@pytest.fixture(autouse=True)
def _own_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a test, in this process or another, are not in the journal of the person who tests."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs the command, in this process and in an empty folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*arguments: str) -> Done:
        with pytest.raises(SystemExit) as exit:
            main(arguments)
        sys.stdout.flush()
        captured = capfdbinary.readouterr()
        assert isinstance(exit.value.code, int)
        return Done(exit.value.code, captured.out, captured.err.decode())

    return run


@pytest.fixture
def run(command: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command, with the small codemod in the place of the real one."""
    monkeypatch.setattr(pipeline, "migrate", fake_codemod.migrate)
    return command
