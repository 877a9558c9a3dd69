"""A save or a load that fails leaves everything as it was, and every process hears of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from accel_runtime import Accelerator
from accel_runtime.checkpoint import writing
from accel_runtime.checkpoint.signals import handlers_postponed
from accel_runtime.errors import CheckpointError
from torch import nn

from tests.distributed.worlds import in_world
from tests.runtime.checkpoint.attacks import Run


class Stubborn:
    """A registered object that fails when it is told to."""

    def __init__(self) -> None:
        self.value, self.fails = 1, ""

    def state_dict(self):
        if self.fails == "save":
            raise ZeroDivisionError("no state today")
        return {"value": self.value}

    def load_state_dict(self, state):
        if self.fails == "load" and state["value"] != self.value:
            raise ZeroDivisionError("no loading today")
        self.value = state["value"]


def test_an_object_that_fails_to_load_leaves_all_others_as_they_were(tmp_path: Path) -> None:
    run = Run(tmp_path)
    stubborn = Stubborn()
    run.accelerator.register_for_checkpointing(stubborn)
    run.saved_within(tmp_path / "x")
    run.recorder.seen, stubborn.value, stubborn.fails = 99, 2, "load"
    run.steps(2)
    before = run.everything()
    with pytest.raises(CheckpointError, match="ZeroDivisionError: no loading today"):
        run.accelerator.load_state(tmp_path / "x")
    assert run.everything() == before and run.recorder.seen == 99
    stubborn.fails = ""
    run.accelerator.load_state(tmp_path / "x")
    assert run.recorder.seen == 3 and stubborn.value == 1


class Picky(nn.Linear):
    """Loads its weights and then refuses."""

    def _load_from_state_dict(self, *args, **kwargs):
        super()._load_from_state_dict(*args, **kwargs)
        raise ValueError("not these")


def test_a_model_or_a_hook_that_fails_leaves_the_weights_as_they_were(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    folder = accelerator.save_state(tmp_path / "x")
    with torch.no_grad():
        for weight in model.parameters():
            weight += 1
    before = [weight.tolist() for weight in model.parameters()]

    def hook(models, where):
        models[0].load_state_dict({name: value * 0 for name, value in models[0].state_dict().items()})
        raise LookupError("no such file of mine")

    handle = accelerator.register_load_state_pre_hook(hook)
    with pytest.raises(CheckpointError, match="LookupError: no such file of mine"):
        accelerator.load_state(folder)
    assert [weight.tolist() for weight in model.parameters()] == before
    handle.remove()
    model[1].__class__ = Picky
    with pytest.raises(CheckpointError, match="ValueError: not these"):
        accelerator.load_state(folder)
    assert [weight.tolist() for weight in model.parameters()] == before


@pytest.mark.parametrize("wait", [True, False])
def test_what_fails_on_one_process_is_heard_by_all(wait: bool, tmp_path: Path) -> None:
    def work():
        accelerator = Accelerator(cpu=True)
        accelerator.prepare(nn.Linear(2, 2))
        mine = accelerator.process_index == 1
        stubborn = Stubborn()
        accelerator.register_for_checkpointing(stubborn)
        told = []

        def attempt(act):
            try:
                act()
            except CheckpointError as error:
                told.append(str(error))

        accelerator.save_state(tmp_path / "x")
        if accelerator.is_main_process:
            stubborn.fails = "save"
        attempt(lambda: accelerator.save_state(tmp_path / "y", wait=wait))
        stubborn.fails = ""

        def hook(*_):
            if mine:
                raise MemoryError("a hook of rank 1")

        handle = accelerator.register_save_state_pre_hook(hook)
        attempt(lambda: accelerator.save_state(tmp_path / "y", wait=wait))
        handle.remove()
        stubborn.value, stubborn.fails = 5, "load" if mine else ""
        attempt(lambda: accelerator.load_state(tmp_path / "x"))
        assert stubborn.value == 5
        stubborn.fails = ""
        accelerator.save_state(tmp_path / "z", wait=wait)  # nobody waits for anybody
        accelerator.load_state(tmp_path / "z")
        return told

    told = in_world(2, work, patience=120)
    assert told[0] == told[1]
    assert told[0] == [
        "ZeroDivisionError on rank 0: no state today",
        "MemoryError on rank 1: a hook of rank 1",
        "ZeroDivisionError on rank 1: no loading today",
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"x", "z"}


@pytest.mark.parametrize("named", [False, True], ids=["numbered", "one name"])
def test_a_signal_handler_that_saves_waits_for_the_save_under_way(named: bool, tmp_path: Path, monkeypatch) -> None:
    accelerator = Accelerator(cpu=True, project_dir=tmp_path)
    accelerator.prepare(nn.Linear(2, 2))
    target = tmp_path / "named" if named else None
    saved: list[str] = []
    monkeypatch.setattr(writing, "_write", interrupted(writing._write))
    before = signal.signal(signal.SIGUSR2, lambda *_: saved.append(accelerator.save_state(target)))
    try:
        outer = accelerator.save_state(target)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert len(saved) == 1 and (saved[0] == outer) == named
    for folder in (outer, *saved):
        accelerator.load_state(folder)


def interrupted(write):
    """The same, but the first call gets a signal in the middle."""
    calls: list[int] = []

    def written(*arguments):
        calls.append(1)
        if len(calls) == 1:
            os.kill(os.getpid(), signal.SIGUSR2)
        return write(*arguments)

    return written


def test_signals_that_waited_reach_their_handlers_though_one_of_these_raises() -> None:
    heard: list[int] = []

    def raises(*_: object) -> None:
        raise TimeoutError

    before = [signal.signal(signal.SIGUSR1, raises), signal.signal(signal.SIGUSR2, lambda *_: heard.append(1))]
    try:
        with pytest.raises(TimeoutError), handlers_postponed():
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGUSR2)
            assert not heard
    finally:
        for number, handler in zip((signal.SIGUSR1, signal.SIGUSR2), before):
            signal.signal(number, handler)
    assert heard == [1]


def test_handlers_that_save_on_two_processes_wait_too(tmp_path: Path) -> None:
    def work():
        accelerator = Accelerator(cpu=True)
        accelerator.prepare(nn.Linear(2, 2))
        rank = accelerator.process_index
        saved: list[str] = []
        signal.signal(signal.SIGUSR2, lambda *_: saved.append(accelerator.save_state(tmp_path / "asked")))
        write, calls = writing._write, []

        def written(*arguments):
            calls.append(1)
            if len(calls) == 2 - rank:  # each at another moment
                os.kill(os.getpid(), signal.SIGUSR2)
            return write(*arguments)

        writing._write = written
        accelerator.save_state(tmp_path / "outer")
        return saved

    assert in_world(2, work, patience=120) == [[str(tmp_path / "asked")]] * 2
    assert {path.name for path in tmp_path.iterdir()} == {"asked", "outer"}
