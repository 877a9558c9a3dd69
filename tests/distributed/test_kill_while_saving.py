"""A kill at any moment of a save leaves a whole checkpoint, and no other is ever loaded."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from accel_runtime import Accelerator, ProjectConfiguration
from torch import nn

from tests.distributed.worlds import in_world

EVERYWHERE = "CHAOS" in os.environ  # `make chaos`; else a few of the moments
STEPS_OF_A_FILE = {  # as the interpreter audits them
    "open",
    "os.rename",
    "os.mkdir",
    "os.remove",
    "os.rmdir",
}


@dataclass(frozen=True)
class Kill:
    """On one rank, before its n-th step with a file; or inside the n-th file, after so many bytes."""

    rank: int
    moment: int
    inside: int | None = None


def prepared(project: Path, automatic: bool):
    config = ProjectConfiguration(project, automatic_checkpoint_naming=automatic, total_limit=1 if automatic else None)
    accelerator = Accelerator(cpu=True, project_config=config)
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
    model, optimizer = accelerator.prepare(model, optimizer)
    return accelerator, model, optimizer


def save_twice(project: Path, automatic: bool, watch: Callable[[], list]) -> tuple[list, list]:
    """The state after one step and after two steps; `watch` is called before the second save."""
    accelerator, model, optimizer = prepared(project, automatic)
    seen: list = []
    states = []
    for step in range(2):
        accelerator.backward(model(torch.ones(2, 8)).sum())
        optimizer.step()
        optimizer.zero_grad()
        states.append(state_of(model, optimizer))
        if step == 1:
            seen = watch()
        accelerator.save_state(None if automatic else project / "only")
    return states, list(seen)


def state_of(model, optimizer) -> tuple:
    plain = model.module if hasattr(model, "module") else model
    return plain.weight.flatten().tolist(), [state["step"].item() for state in optimizer.state.values()]


def on_file_steps(project: Path, react: Callable[[str], None]) -> None:
    """From now on, calls `react` before every step with a file below the folder; opens only when they write."""

    def hook(event: str, arguments: tuple) -> None:
        if event in STEPS_OF_A_FILE and str(project) in str(arguments[0]):
            if event != "open" or (arguments[2] or 0) & os.O_WRONLY:
                react(event)

    sys.addaudithook(hook)


def observed(project: Path) -> list[str]:
    seen: list[str] = []
    on_file_steps(project, seen.append)
    return seen


def dying(project: Path, kill: Kill) -> list[str]:
    steps = itertools.count()

    def react(_: str) -> None:
        if next(steps) != kill.moment:
            return
        if kill.inside is None:
            os.kill(os.getpid(), signal.SIGKILL)
        # The kernel lets that many bytes through and then ends the process.
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (kill.inside, kill.inside))

    on_file_steps(project, react)
    return []


def all_kills(project: Path, automatic: bool) -> tuple[list, list[Kill]]:
    """The two states that may be found, and every moment at which a save can be cut."""
    told = in_world(2, lambda: save_twice(project, automatic, lambda: observed(project)))
    kills = []
    for rank, (_, seen) in enumerate(told):
        assert seen, f"rank {rank} was not observed"
        for moment, event in enumerate(seen):
            kills.append(Kill(rank, moment))
            if event == "open":
                kills += [Kill(rank, moment, inside) for inside in (1, 2, 7, 20, 40, 80, 120, 160, 200, 300, 500, 800)]
    return told[0][0], kills


@pytest.mark.parametrize("automatic", [True, False], ids=["numbered", "same folder"])
def test_a_kill_during_save_loses_nothing_and_loads_nothing_half(automatic: bool, tmp_path: Path) -> None:
    states, kills = all_kills(tmp_path / "observed", automatic)
    chosen = kills if EVERYWHERE else kills[:: max(1, len(kills) // 5)]
    done = 0
    for number, kill in enumerate(chosen):
        project = tmp_path / str(number)

        def killed(project: Path = project, kill: Kill = kill):
            mine = int(os.environ["RANK"]) == kill.rank
            return save_twice(project, automatic, lambda: dying(project, kill) if mine else [])

        try:
            in_world(2, killed)
        except AssertionError:
            done += 1
        else:
            assert kill.inside is not None, f"{kill} did not happen"  # a file may be shorter than that
        accelerator, model, optimizer = prepared(project, automatic)
        accelerator.load_state("latest" if automatic else project / "only")
        assert state_of(model, optimizer) in states, kill
        accelerator.save_state(None if automatic else project / "only")
        home = project / "checkpoints" if automatic else project
        assert len(list(home.iterdir())) == 1, f"{kill} left {sorted(home.iterdir())}"
    assert done >= (100 if EVERYWHERE else 1)  # in each of the two ways to name a folder
    print(f"{done} kills, 0 lost, 0 half")
