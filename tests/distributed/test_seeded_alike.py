"""What a script draws before it seeds anything: the same on all processes, another in the next run; alone as without us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LAUNCH = [sys.executable, "-m", "accel_runtime", "launch", "--cpu", "--num-processes", "2"]
ALONE = [sys.executable]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
SEEDS = "random.seed(7); np.random.seed(7); torch.manual_seed(7)"
DRAWS = """
import json, os, random
from multiprocessing import get_context

import numpy as np
import torch
{first}
from accel_runtime import Accelerator
from torch.utils.data import random_split


def drawn():
    files = list("abcdefghijklmnop")
    random.shuffle(files)
    return {{
        "files": files,
        "split": random_split(range(40), [30, 10])[1].indices,
        "data": np.random.normal(size=3).tolist(),
        "weights": torch.nn.Linear(3, 1).weight.tolist(),
    }}


def in_child(end):
    end.send(random.random())


if __name__ == "__main__":
    found = drawn()
    if {asks_child}:
        end, other = get_context("spawn").Pipe()
        child = get_context("spawn").Process(target=in_child, args=(other,))
        child.start()
        found["child"] = end.recv()
        child.join()
    with open(os.environ.get("RANK", "alone") + ".json", "w") as file:
        json.dump(found, file)
"""


def draw(
    folder: Path, command: list[str], first: str = "", asks_child: bool = False, **variables: str
) -> list[dict[str, Any]]:
    """What each rank draws, or the one process."""
    (folder / "draws.py").write_text(DRAWS.format(first=first, asks_child=asks_child))
    environ = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(
        [*command, "draws.py"], cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    ranks = ["alone"] if command == ALONE else ["0", "1"]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in ranks]


def test_processes_that_nobody_seeds_draw_alike_and_their_children_do_not(tmp_path: Path) -> None:
    one, other = draw(tmp_path, LAUNCH, asks_child=True)
    assert one.pop("child") != other.pop("child")
    assert one == other


@pytest.mark.full  # two runs of a notebook show it too
def test_each_run_draws_anew(tmp_path: Path) -> None:
    (first, _), (second, _) = draw(tmp_path, LAUNCH), draw(tmp_path, LAUNCH)
    assert not [what for what in first if first[what] == second[what]]


def test_torchrun_alone_is_enough(tmp_path: Path) -> None:
    one, other = draw(tmp_path, TORCHRUN)
    assert one == other


def test_a_number_or_the_script_itself_seeds_every_run_and_none_leaves_every_process_to_itself(tmp_path: Path) -> None:
    expected = draw(tmp_path, ALONE, SEEDS)
    assert draw(tmp_path, LAUNCH, ACCEL_SEED="7") == draw(tmp_path, LAUNCH, SEEDS) == expected * 2
    one, other = draw(tmp_path, LAUNCH, ACCEL_SEED="none")
    assert not [what for what in one if one[what] == other[what]]


def test_one_process_draws_what_it_would_without_us(tmp_path: Path) -> None:
    script = (
        "import random, numpy, torch\n"
        "state = lambda: (random.getstate(), str(numpy.random.get_state()), torch.get_rng_state().tolist())\n"
        "before, seed = state(), torch.initial_seed()\n"
        "from accel_runtime import Accelerator, set_seed\n"
        "assert state() == before and torch.initial_seed() == seed\n"
    )
    (tmp_path / "alone.py").write_text(script)
    launched = [sys.executable, "-m", "accel_runtime", "launch", "--cpu", "--num-processes", "1"]
    for command, variables in (([sys.executable], {"ACCEL_SEED": "3"}), (launched, {})):
        done = subprocess.run([*command, "alone.py"], cwd=tmp_path, env={**os.environ, **variables}, check=False)
        assert done.returncode == 0


NOTEBOOK = """
import json, random
import numpy as np
import torch
from accel_runtime import Accelerator, notebook_launcher


def train(folder):
    drawn = random.random(), np.random.rand(), torch.rand(1).item()
    with open(f"{folder}/{Accelerator(cpu=True).process_index}.json", "w") as file:
        json.dump(drawn, file)


if __name__ == "__main__":
    for run in "ab":
        notebook_launcher(train, (run,), num_processes=2, cpu=True)
"""


def test_the_functions_of_a_notebook_draw_alike(tmp_path: Path) -> None:
    (tmp_path / "cells.py").write_text(NOTEBOOK)
    for run in "ab":
        (tmp_path / run).mkdir()
    done = subprocess.run(
        [sys.executable, "cells.py"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second = ([json.loads((tmp_path / run / f"{rank}.json").read_text()) for rank in (0, 1)] for run in "ab")
    assert first[0] == first[1] and second[0] == second[1]
    assert not [number for number in first[0] if number in second[0]]
