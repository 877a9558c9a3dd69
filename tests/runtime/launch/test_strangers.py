"""Processes that cannot meet are refused at their first step; others train on, whatever else watches the steps."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
from accel_runtime.launch.strangers import refuse_strangers
refuse_strangers("train.py", "2")
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
{meet}
steps = []
register_optimizer_step_pre_hook(lambda *_: steps.append(1))
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
optimizer.step()
optimizer.step()
print(len(steps))
"""


def run(meet: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", SCRIPT.format(meet=meet)], capture_output=True, text=True)


def test_another_hook_of_the_script_goes_on_being_called() -> None:
    met = run("import accel_runtime.resolve")
    assert met.stdout.strip() == "2", met.stderr


def test_processes_that_have_nothing_to_meet_by_are_refused() -> None:
    assert "know nothing of each other" in run("").stderr
