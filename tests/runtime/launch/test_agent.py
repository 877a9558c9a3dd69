"""One process: the script takes the launcher's place, or the launcher waits for it where a process cannot be replaced."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest
from accel_runtime.launch import agent


def test_on_windows_the_launcher_waits_for_the_script_and_ends_as_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "os", SimpleNamespace(name="nt", environ=os.environ))
    ends = [sys.executable, "-c", "import os; raise SystemExit(int(os.environ['CODE']))"]
    plan = SimpleNamespace(environment={"CODE": "3"}, replaces_launcher=True, command=lambda: ends)
    with pytest.raises(SystemExit) as exit:
        agent.run_plan(plan)
    assert exit.value.code == 3
