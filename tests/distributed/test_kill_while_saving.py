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
from accel_runtime import Accelerator, FullyShardedDataParallelPlugin, ProjectConfiguration
from torch import nn
from torch.distributed.tensor import DTensor

from tests.distributed.worlds import in_world

NOTES = "notes.txt"  # a file of the user's in the folder of the checkpoint
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


@dataclass(frozen=True)
class Way:
    """To save: under numbers or into one folder, where another file is too; waiting or not; whole or in shards."""

    automatic: bool
    wait: bool = True
    sharded: bool = False

    def target(self, project: Path) -> Path | None:
        return None if self.automatic else project / "only"


WAYS = {
    "numbered": Way(automatic=True),
    "same folder": Way(automatic=False),
    "numbered, without waiting": Way(automatic=True, wait=False),
    "same folder, sharded": Way(automatic=False, sharded=True),
    "numbered, sharded, without waiting": Way(automatic=True, wait=False, sharded=True),
}


def prepared(project: Path, way: Way):
    limit = 1 if way.automatic else None
    config = ProjectConfiguration(project, automatic_checkpoint_naming=way.automatic, total_limit=limit)
    settings = {"fsdp_plugin": FullyShardedDataParallelPlugin()} if way.sharded else {}
    accelerator = Accelerator(cpu=True, project_config=config, **settings)
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
    model, optimizer = accelerator.prepare(model, optimizer)
    return accelerator, model, optimizer


def save_twice(project: Path, way: Way, watch: Callable[[], list]) -> tuple[list, list]:
    """The state after one step and after two steps; `watch` is called before the second save."""
    accelerator, model, optimizer = prepared(project, way)
    seen: list = []
    states = []
    for step in range(2):
        accelerator.backward(model(torch.ones(2, 8)).sum())
        optimizer.step()
        optimizer.zero_grad()
        states.append(state_of(model, optimizer))
        if step == 1:
            if not way.automatic and accelerator.is_main_process:
                (project / "only" / NOTES).write_text("mine")
            accelerator.wait_for_everyone()
            seen = watch()
        accelerator.save_state(way.target(project), wait=way.wait)
        accelerator._checkpoints.background.settle()
    return states, list(seen)


def state_of(model, optimizer) -> tuple:
    weight = (model.module if hasattr(model, "module") else model).weight
    whole = weight.full_tensor() if isinstance(weight, DTensor) else weight
    return whole.flatten().tolist(), [state["step"].item() for state in optimizer.state.values()]


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


def all_kills(project: Path, way: Way) -> tuple[list, list[Kill]]:
    """The two states that may be found, and every moment at which a save can be cut."""
    told = in_world(2, lambda: save_twice(project, way, lambda: observed(project)))
    kills = []
    for rank, (_, seen) in enumerate(told):
        assert seen, f"rank {rank} was not observed"
        for moment, event in enumerate(seen):
            kills.append(Kill(rank, moment))
            if event == "open":
                kills += [Kill(rank, moment, inside) for inside in (1, 2, 7, 20, 40, 80, 120, 160, 200, 300, 500, 800)]
    return told[0][0], kills


@pytest.mark.parametrize("name", WAYS)
def test_a_kill_during_save_loses_nothing_and_loads_nothing_half(name: str, tmp_path: Path) -> None:
    way = WAYS[name]
    states, kills = all_kills(tmp_path / "observed", way)
    distance = max(1, len(kills) // (5 if way.wait and not way.sharded else 1))
    chosen = kills if EVERYWHERE else kills[distance // 2 :: distance]
    done = 0
    for number, kill in enumerate(chosen):
        project = tmp_path / str(number)

        def killed(project: Path = project, kill: Kill = kill):
            mine = int(os.environ["RANK"]) == kill.rank
            return save_twice(project, way, lambda: dying(project, kill) if mine else [])

        try:
            in_world(2, killed)
        except AssertionError:
            done += 1
        else:
            assert kill.inside is not None, f"{kill} did not happen"  # a file may be shorter than that
        (found,) = in_world(1, lambda project=project: found_and_saved_again(project, way))
        assert found in states, kill
        home = project / "checkpoints" if way.automatic else project
        assert len(list(home.iterdir())) == 1, f"{kill} left {sorted(home.iterdir())}"
        if not way.automatic:
            assert (project / "only" / NOTES).read_text() == "mine", kill
    assert done >= (100 if EVERYWHERE else 1)  # in each of the ways
    print(f"{name}: {done} kills, 0 lost, 0 half")


def found_and_saved_again(project: Path, way: Way) -> tuple:
    """What the next run loads, which then saves."""
    accelerator, model, optimizer = prepared(project, way)
    accelerator.load_state(way.target(project) or "latest")
    found = state_of(model, optimizer)
    accelerator.save_state(way.target(project))
    return found
