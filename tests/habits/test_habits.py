"""Scripts made of habits are refused, or train as they did: on one process, on a GPU, and alike on two processes.

What files they leave hold the same.

`make test` runs a few, `make test-full` twice as many, `make habits` (HABITS=all) each in every form and some hundred that
are drawn together.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.habits.scripts import FORMS, HABITS, script
from tests.warm import python

WATCHED = str(Path(__file__).with_name("watched.py"))
DRAWN = 12  # of each kind in `make test-full`
_LOSS = re.compile(r"^loss (\S+)", re.M)


def _cases() -> list[str]:
    everything = os.environ.get("HABITS") == "all"
    drawn = random.Random(0)
    single = [f"{name}.{form}" for name in HABITS for form in FORMS]
    together: list[str] = []
    while len(together) < (400 if everything else DRAWN):
        names = drawn.sample(list(HABITS), 3)
        if script(names, "flat") is not None:
            together.append(f"{'+'.join(names)}.{drawn.choice(FORMS)}")
    return [*(single if everything else drawn.sample(single, DRAWN)), *together]


@dataclass(frozen=True)
class Run:
    code: int
    text: str
    losses: list[str]

    @property
    def end(self) -> str:
        return "\n".join(self.text.splitlines()[-8:])


def _run(folder: Path, files: dict[str, str], *command: str) -> Run:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    environment = {**os.environ, "XDG_STATE_HOME": str(folder)}
    done = subprocess.run(
        [python(), *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return Run(done.returncode, done.stdout + done.stderr, _LOSS.findall(done.stderr))


def _in_turn(cases: list[str]) -> list[Any]:
    """Every other one is left to `make test-full`."""
    return [pytest.param(case, marks=[pytest.mark.full] * (number % 2)) for number, case in enumerate(cases)]


@pytest.mark.parametrize("case", _in_turn(_cases()))
def test_is_left_alone_or_trains_as_it_did(case: str, tmp_path: Path) -> None:
    names, _, form = case.rpartition(".")
    before = script(names.split("+"), form)
    assert before is not None
    watched, on_gpu = (WATCHED, "train.py"), (WATCHED, "--gpus", "train.py")
    original = _run(tmp_path / "before", before, *watched)
    if original.code:
        pytest.skip(f"habits that do not go together: {original.text.splitlines()[-1]}")
    kept = (tmp_path / "before" / "kept").read_text()
    report = _run(tmp_path / "after", before, "-m", "accel_migrate", *before).text
    after = {name: (tmp_path / "after" / name).read_text() for name in before}
    if after == before:
        assert "AM901" in report
        return
    result = _run(tmp_path / "after", after, *watched)
    assert not result.code, result.end
    scaled = any("GradScaler" in text for text in before.values())  # there the loss of the original is a multiple
    assert scaled or result.losses == original.losses
    assert (tmp_path / "after" / "kept").read_text() == kept
    gpu = _run(tmp_path / "before", before, *on_gpu)
    if not gpu.code:
        result = _run(tmp_path / "after", after, *on_gpu)
        assert not result.code, result.end
        assert scaled or result.losses == gpu.losses
    launch = ("-m", "accel_runtime", "launch", "--cpu", "--num-processes", "2")
    two = _run(tmp_path / "after", after, *launch, *watched)
    assert not two.code, two.text
    weights = [(tmp_path / "after" / f"weights.{rank}").read_text() for rank in range(2)]
    assert weights[0] == weights[1], "the weights of two processes part"
    assert (tmp_path / "after" / "kept").read_text() == kept
