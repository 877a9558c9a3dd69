"""The line that benchmarks/step_overhead.py draws."""

import importlib.util
import sys
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location(
    "step_overhead", Path(__file__).parents[2] / "benchmarks" / "step_overhead.py"
)
step_overhead = importlib.util.module_from_spec(_spec)
sys.modules["step_overhead"] = step_overhead
_spec.loader.exec_module(step_overhead)


@pytest.mark.parametrize("case", step_overhead.CASES, ids=str)
def test_a_step_adds_few_calls_to_plain_pytorch(case):
    more = step_overhead.calls_per_step(step_overhead.ours, case) - step_overhead.calls_per_step(
        step_overhead.plain, case
    )
    assert more.python <= 10
    assert more.c <= 2
