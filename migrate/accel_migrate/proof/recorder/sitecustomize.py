"""Python runs this at the start of every process of a proof; it waits until the script imports torch."""

from __future__ import annotations

import importlib.abc
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
# In the order in which they import each other. The package that they belong to need not be installed beside the script.
MODULES = (
    "journal",
    "chance",
    "samples",
    "forms",
    "printed",
    "on_cpu",
    "gradients",
    "pretended",
    "step_trace",
    "observed",
    "watch",
)
STAND_INS = ("told", "made_up", "packages", "weights", "vision", "texts", "network", "install")


def load(name: str) -> ModuleType:
    """A module of this folder under its full name, by which the next ones import it."""
    full_name = f"accel_migrate.proof.recorder.{name}"
    spec = importlib.util.spec_from_file_location(full_name, HERE / f"{name.replace('.', '/')}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full_name] = module
    spec.loader.exec_module(module)
    return module


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls back when a module has been imported, and leaves the importing to the others."""

    def __init__(self, then: dict[str, list[Callable[[ModuleType], object]]]) -> None:
        self.then = then

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        waiting = self.then.pop(name, None)
        if waiting is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: ModuleType) -> None:
                execute(module)
                for each in waiting:
                    each(module)

            setattr(spec.loader, "exec_module", executed)  # noqa: B010  a method of an instance
        return spec


def begin(settings: dict[str, Any]) -> None:
    """Look into the copy of the project, and watch torch as soon as it is there."""
    copied = (_in_copy(Path(entry), settings) for entry in sys.path)
    sys.path[:] = [entry for entry in copied if entry != str(HERE)]
    *_, watch = [load(name) for name in MODULES]
    watch.before_torch(settings)
    then: dict[str, list[Callable[[ModuleType], object]]] = {"torch": [lambda torch: watch.install(torch, settings)]}
    if settings["stand_ins"]:
        *_, stand_ins = [load(f"stand_ins.{name}") for name in STAND_INS]
        for name, each in stand_ins.install(settings, watch.is_near).items():
            then.setdefault(name, []).append(each)
    for name in [name for name in then if name in sys.modules]:
        for each in then.pop(name):
            each(sys.modules[name])
    sys.meta_path.insert(0, AfterImport(then))


def _in_copy(entry: Path, settings: dict[str, Any]) -> str:
    """An editable install leads into the project itself; the copy is what is to be run."""
    project, copy = Path(settings["project"]), Path(settings["copy"])
    if entry.is_relative_to(project) and not entry.is_relative_to(copy):
        moved = copy / entry.relative_to(project)
        return str(moved) if moved.is_dir() else str(entry)
    return str(entry)


def run_hidden() -> None:
    """The sitecustomize that this one stands in front of."""
    others = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if __name__ == "sitecustomize":
    run_hidden()
    if "MIGRATION_PROOF" in os.environ:
        begin(json.loads(os.environ["MIGRATION_PROOF"]))
