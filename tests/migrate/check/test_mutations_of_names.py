"""Ways to break a right result, each refused with the right code: names, orphans, accounting, the CPU."""

from __future__ import annotations

from functools import cache

import pytest
from accel_migrate.check import violations
from accel_migrate.flow.version import Version
from accel_migrate.pipeline import migrate
from accel_migrate.plan import FileResult, Status
from accel_migrate.source import Source

from tests.cases import FIXTURES


@cache
def result(name: str) -> tuple[Version, FileResult]:
    path = FIXTURES / name / "before.py"
    source = Source.from_bytes(path, path.read_bytes())
    (done,) = migrate([source])
    assert done.status is Status.MIGRATED, done.reason
    return Version(source), done


def codes(name: str, old: str, new: str) -> set[str]:
    """The codes by which a broken result is refused."""
    before, done = result(name)
    text = done.after.decode()
    assert old in text, f"{name} no longer holds {old!r}"
    after = Version(Source.from_bytes(done.path, text.replace(old, new, 1).encode()))
    assert after.tree
    return {each.code for each in violations([before], {done.path: after}, {done.path: done.applied})}


MADE = "    accelerator = Accelerator()\n"

NAMES = [
    ("folds", MADE, ""),
    ("folds", MADE, "    if torch.cuda.is_available():\n        accelerator = Accelerator()\n"),
    ("folds", MADE + "    x = ", "    accelerator.print('start')\n" + MADE + "    x = "),
    ("folds", "        model = build_model()\n", "        accelerator = Accelerator()\n        model = build_model()\n"),
    ("list_comprehension_moves", MADE, "    try:\n        accelerator = Accelerator()\n    except RuntimeError:\n        pass\n"),
    ("main_guard_globals", "    accelerator = Accelerator()\n", ""),
    ("trainer_class", "from accel_runtime import Accelerator\n", ""),
    ("data_parallel", "import torch.nn as nn\n", ""),
    ("ema_copy", "accelerator = Accelerator()", "gone = Accelerator()"),
    ("several_models_one_optimizer", MADE, "    for attempt in range(3):\n        accelerator = Accelerator()\n"),
    ("ema_copy", "    device = accelerator.device\n", ""),
    ("nested_train_step", "from torch import nn\n", ""),
]  # fmt: skip
ORPHANS = [
    ("ema_copy", "            update_average(average, model)\n", ""),
    ("ema_copy", "accelerator.backward(loss)\n", "accelerator.backward(loss)\n            model = model\n"),
    ("folds", "    return nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 2))\n", "    pass\n"),
    ("folds", "                optimizer.step()\n", "                optimizer.step()\n                if epoch: pass\n"),
]  # fmt: skip
ON_CPU = [
    ("gan_with_samples", "fake.cpu().numpy()", "fake.numpy()"),
    ("autoencoder_summed_loss", "comparison.cpu().numpy()", "comparison.numpy()"),
    ("distributional_q_learning", "int(actions.cpu())", "int(actions)"),
    ("class_weights_in_criterion", "labels.cpu()", "labels"),
    ("list_comprehension_moves", ".norm(dim=1).cpu()", ".norm(dim=1)"),
]
UNACCOUNTED = [
    ("folds", "                optimizer.zero_grad()\n", ""),
    ("folds", "shuffle=True", "shuffle=False"),
    ("folds", "for epoch in range(2):", "for epoch in range(1):"),
    ("ema_copy", "@torch.no_grad()\n", ""),
    ("ema_copy", "lr=0.01", "lr=0.02"),
    ("trainer_class", "lr=0.05", "lr=0.5"),
    ("several_models_one_optimizer", "    torch.manual_seed(19)\n", ""),
    ("main_guard_globals", "    torch.manual_seed(31)\n", "    torch.manual_seed(31)\n    torch.manual_seed(32)\n"),
    ("nested_train_step", "optimizer.step()\n", "optimizer.step(); optimizer.step()\n"),
]


@pytest.mark.parametrize(("name", "old", "new"), NAMES)
def test_a_name_that_is_not_bound(name: str, old: str, new: str) -> None:
    assert "AM950" in codes(name, old, new)


@pytest.mark.parametrize(("name", "old", "new"), ORPHANS)
def test_something_that_is_left_behind(name: str, old: str, new: str) -> None:
    assert "AM951" in codes(name, old, new)


@pytest.mark.parametrize(("name", "old", "new"), UNACCOUNTED)
def test_a_difference_that_no_change_accounts_for(name: str, old: str, new: str) -> None:
    assert codes(name, old, new) == {"AM957"}


@pytest.mark.parametrize(("name", "old", "new"), ON_CPU)
def test_a_move_to_the_cpu_that_is_lost(name: str, old: str, new: str) -> None:
    assert "AM958" in codes(name, old, new)


@pytest.mark.parametrize("name", sorted({name for name, *_ in (*NAMES, *ORPHANS, *UNACCOUNTED, *ON_CPU)}))
def test_what_is_right_is_not_refused(name: str) -> None:
    assert codes(name, "import", "import") == set()
