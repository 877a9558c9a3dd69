"""Puts the stand-ins in place, each when what it stands in for is imported."""

from __future__ import annotations

import functools
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from accel_migrate.proof.recorder.stand_ins.network import refuse
from accel_migrate.proof.recorder.stand_ins.packages import install_missing
from accel_migrate.proof.recorder.stand_ins.texts import of_datasets, of_transformers
from accel_migrate.proof.recorder.stand_ins.told import Told
from accel_migrate.proof.recorder.stand_ins.vision import of_vision
from accel_migrate.proof.recorder.stand_ins.weights import of_timm, of_torch

Hooks = dict[str, Callable[[ModuleType], object]]
MOST_WORKERS = 2
QUIET = {"WANDB_MODE": "disabled", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "COMET_MODE": "disabled"}


def install(settings: dict[str, Any], is_near: Callable[[str], bool]) -> Hooks:
    """What is to be done once a module has been imported, by its name."""
    copy, true_lengths = Path(settings["copy"]).resolve(), settings["stand_ins"] == "true lengths"
    told = Told(Path(settings["folder"]))
    os.environ.update(QUIET)
    install_missing(told, copy)
    _no_terminal(told)
    refuse(is_near, copy)

    def of_any_torch(torch: Any) -> None:
        of_torch(torch, told)
        fewer_workers(torch, told)

    return {
        "torch": of_any_torch,
        "torchvision.datasets": lambda datasets: of_vision(datasets, sys.modules["torch"], told, copy, true_lengths),
        "timm": lambda timm: of_timm(timm, told),
        "transformers": lambda transformers: of_transformers(transformers, told),
        "datasets": lambda datasets: of_datasets(datasets, told),
    }


def _no_terminal(told: Told) -> None:
    """Scripts that draw a bar ask for the size of a terminal, which these runs do not have."""
    plain = os.popen

    @functools.wraps(plain)
    def popen(command: str, *args: Any, **kwargs: Any) -> Any:
        if command.strip() != "stty size":
            return plain(command, *args, **kwargs)
        told.say("the terminal", "24 lines of 80")
        return io.StringIO("24 80\n")

    setattr(os, "popen", popen)  # noqa: B010  mypy knows another type of it


def fewer_workers(torch: Any, told: Told) -> None:
    """A loader for a large machine would start more processes here than there is work for."""
    plain = torch.utils.data.DataLoader.__init__

    @functools.wraps(plain)
    def made(loader: Any, *args: Any, **kwargs: Any) -> None:
        wanted = kwargs.get("num_workers", 0)
        if wanted > MOST_WORKERS:
            kwargs["num_workers"] = MOST_WORKERS
            told.say("loaders", f"with {MOST_WORKERS} workers for {wanted}")
        plain(loader, *args, **kwargs)

    torch.utils.data.DataLoader.__init__ = made
