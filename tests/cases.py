"""The cases under fixtures/: whole scripts as people write them, what they must become, and how they are run.

`case.toml` is optional:
    options    = ["--keep-device"]           options of accel-migrate
    arguments  = ["--epochs", "2"]           arguments of the script
    entry      = "main.py"                   the script to run, when before/ and after/ are folders
    losses     = "equal"                     or, in a sentence, why they cannot be compared on one process
    figures    = 'accuracy (\\d+\\.\\d+)'      what the script prints about its evaluation: equal on 1 and 2 processes
    launched   = true                        the original joins a process group: it is started as torchrun would, alone
    gpus       = 2                           how many GPUs a machine has on which both are run as well (GPUs that stand in)
    three      = true                        the figures are equal on 3 processes as well
    two        = true                        false, with `why_not`, when the case cannot run on two processes
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

FIXTURES = Path(__file__).parent.parent / "fixtures"


@dataclass(frozen=True)
class Case:
    folder: Path
    options: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    entry: str = ""
    losses: str = "equal"
    figures: str = ""
    two: bool = True
    why_not: str = ""
    three: bool = False
    runs: bool = field(default=True)
    launched: bool = False
    gpus: int = 0

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def is_project(self) -> bool:
        return (self.folder / "before").is_dir()

    def script(self, state: str) -> Path:
        return self.folder / state / self.entry if self.is_project else self.folder / f"{state}.py"


def all_cases() -> list[Case]:
    folders = sorted(path for path in FIXTURES.iterdir() if path.is_dir())
    return [_load(folder) for folder in folders]


def _load(folder: Path) -> Case:
    settings = folder / "case.toml"
    said = tomllib.loads(settings.read_text()) if settings.exists() else {}
    return Case(folder, **{key: tuple(value) if isinstance(value, list) else value for key, value in said.items()})
