"""The codemod's work grows with the size of what it reads, and no faster: counted in calls, not in seconds."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

_SPEC = importlib.util.spec_from_file_location(
    "codemod_growth", Path(__file__).parents[2] / "benchmarks" / "codemod_growth.py"
)
assert _SPEC is not None and _SPEC.loader is not None
growth = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(growth)


def calls(texts: dict[str, str]) -> int:
    counted = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal counted
        counted += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        growth.cost(texts)
    finally:
        sys.setprofile(before)
    return counted


def at_the_top(size: int) -> dict[str, str]:
    return {"train.py": growth.script(size * 50, growth.statement)}


def in_functions(size: int) -> dict[str, str]:
    return {"train.py": growth.script(size * 50, growth.function)}


@pytest.mark.parametrize("texts", [at_the_top, pytest.param(in_functions, marks=pytest.mark.full), growth.project])
def test_four_times_the_code_is_at_most_five_times_the_work(texts: Callable[[int], dict[str, str]]) -> None:
    calls(texts(2))  # imports
    assert calls(texts(40)) < 5 * calls(texts(10))


OVERRIDDEN = """
import torch, yaml
from torch.utils.data import DataLoader, TensorDataset
def fit(chosen):
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=chosen["run"]["rate"])
    loader = DataLoader(TensorDataset(torch.randn(16, 4)), batch_size=4)
    for (x,) in loader:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if chosen["run"]["save"]:
        torch.save(model.state_dict(), "model.pt")
chosen = yaml.safe_load(open("settings"))
{}
fit(chosen)
"""


def test_settings_that_options_override_one_by_one() -> None:
    def overridden(lines: int) -> dict[str, str]:
        each = 'chosen["run"]["{0}"] = given.{0} if given.{0} else chosen["run"]["{0}"]'
        return {"train.py": OVERRIDDEN.format("\n".join(each.format(f"k{number}") for number in range(lines)))}

    few, many = calls(overridden(2)), calls(overridden(8))
    assert many < 8 * few


def test_leaves_little_for_the_collector():
    texts = at_the_top(4)
    growth.cost(texts)
    gc.collect()
    gc.disable()
    try:
        growth.cost(texts)
        assert gc.collect() < 200  # thousands, if what is kept with a file were not let go of
    finally:
        gc.enable()
