"""Processes that would wait for each other for ever say where they stand."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from accel_runtime import Accelerator, PartialState
from accel_runtime.agreement import Agreement
from accel_runtime.errors import UsageError
from accel_runtime.watchdog import Watchdog
from accel_runtime.world import World
from torch.distributed import TCPStore
from torch.utils.data import DataLoader, IterableDataset

from tests.distributed.worlds import in_world
from tests.warm import python


class Heard:
    """Stands for stderr, and can be waited for."""

    def __init__(self) -> None:
        self.text = ""
        self.said = threading.Event()

    def write(self, text: str) -> None:
        self.text += text
        self.said.set()


def test_watchdog_names_the_line_the_call_and_the_stack(monkeypatch) -> None:
    heard = Heard()
    monkeypatch.setattr(sys, "stderr", heard)
    watchdog = Watchdog(World(rank=1, size=2), progress=list, patience=0.2)
    watchdog.start()
    assert heard.said.wait(60)  # this very line stands still
    watchdog.stop()
    assert heard.text.startswith(f"rank 1 of 2 has stood at {__file__}:")
    assert " in wait for 0 s" in heard.text
    assert "assert heard.said.wait(60)" in heard.text


def test_watchdog_is_silent_while_there_is_progress(monkeypatch) -> None:
    heard = Heard()
    monkeypatch.setattr(sys, "stderr", heard)
    looks, enough = [], threading.Event()

    def progress() -> int:
        looks.append(None)
        if len(looks) == 60:
            enough.set()
        return len(looks)

    watchdog = Watchdog(World(rank=0, size=2), progress, patience=0.1)
    watchdog.start()
    assert enough.wait(60)
    watchdog.stop()
    assert heard.text == ""


LEAVES_EARLY = """
import torch
from accel_runtime import Accelerator, PartialState

accelerator = Accelerator(cpu=True, hang_timeout=1)
model = accelerator.prepare(torch.nn.Linear(2, 1))
for step in range(5):
    if accelerator.process_index == 1 and step == 3:
        break
    accelerator.backward(model(torch.ones(1, 2)).sum())  # here waits rank 0
accelerator.gather(torch.ones(1, dtype=torch.int8))  # and here rank 1
"""


def test_a_rank_that_leaves_the_loop_early_is_named_with_the_line_where_the_others_wait(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LEAVES_EARLY)
    lines = LEAVES_EARLY.splitlines()
    waiting = {
        f"rank {rank} of 2 has stood at {script}:{next(n for n, line in enumerate(lines, 1) if mark in line)}"
        for rank, mark in enumerate(("here waits rank 0", "and here rank 1"))
    }
    command = [python(), "-m", "accel_runtime", "launch", "--cpu", "--num-processes", "2", str(script)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        said = []
        for line in run.stderr:
            said.append(line)
            if all(any(place in one for one in said) for place in waiting):
                break
        run.terminate()
    assert all(any(place in one for one in said) for place in waiting), "".join(said)


def divergent() -> str:
    os.environ["ACCEL_DEBUG"] = "true"
    accelerator = Accelerator(cpu=True)
    accelerator.gather(torch.ones(1))
    try:
        if accelerator.is_main_process:
            accelerator.gather(torch.ones(1))
        else:
            accelerator.wait_for_everyone()
    except UsageError as error:
        return str(error)
    return ""


def test_debug_mode_names_both_places_of_a_divergent_collective() -> None:
    first, second = in_world(2, divergent)
    file = Path(__file__).name
    assert f"rank 0 is in gather at {__file__}" in first and "while rank 1 is in barrier at" in first
    assert f"rank 1 is in barrier at {__file__}" in second and "while rank 0 is in gather at" in second
    assert first.count(file) == 2


def test_debug_mode_hears_each_accelerator_and_the_state_apart() -> None:
    def work() -> list[bool]:
        os.environ["ACCELERATE_DEBUG_MODE"] = "1"
        first, second, state = Accelerator(cpu=True), Accelerator(cpu=True), PartialState(cpu=True)
        for _ in range(2):
            first.gather(torch.ones(1))
            second.wait_for_everyone()
            state.gather_object([1])
        asked = [first.debug, state.debug]
        for wanted in (False, True):
            state.debug = wanted
            state.wait_for_everyone()
            asked.append(state.debug)
        return asked

    assert in_world(2, work) == [[True, True, False, True]] * 2


def test_a_state_that_is_put_into_debug_mode_names_both_places() -> None:
    def work() -> str:
        state = PartialState(cpu=True)
        state.debug = True
        with pytest.raises(UsageError) as refusal:
            state.gather(torch.ones(1)) if state.is_main_process else state.wait_for_everyone()
        return str(refusal.value)

    for said in in_world(2, work):
        assert said.count(Path(__file__).name) == 2


def test_a_process_that_does_not_come_is_named() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    agreement = Agreement(World(rank=0, size=2), store, patience=0.2)
    store.set("accel/collective/0/1", "reduce at train.py:7")
    agreement.check("reduce")
    with pytest.raises(UsageError, match=r"rank 1 has not come there in 0 s; it was last in reduce at train\.py:7"):
        agreement.check("gather")


def test_debug_mode_watches_checkpoints_too(tmp_path: Path) -> None:
    def work() -> str:
        os.environ["ACCEL_DEBUG"] = "true"
        accelerator = Accelerator(cpu=True)
        with pytest.raises(UsageError) as refusal:
            if accelerator.is_main_process:
                accelerator.save_state(tmp_path / "x")
            accelerator.wait_for_everyone()
        return str(refusal.value)

    for rank, said in enumerate(in_world(2, work)):
        assert f"rank {rank} is in {'barrier' if rank else 'save_state'} at {__file__}:" in said
    assert not list(tmp_path.iterdir())


class Stuck(IterableDataset):
    def __iter__(self):
        yield torch.zeros(1)
        time.sleep(60)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_loader_worker_that_does_not_answer_is_an_error_where_the_loader_has_a_timeout(persistent: bool) -> None:
    loader = DataLoader(Stuck(), 1, num_workers=1, timeout=1, persistent_workers=persistent)
    batches = iter(Accelerator(cpu=True).prepare(loader))
    next(batches)
    with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
        next(batches)
