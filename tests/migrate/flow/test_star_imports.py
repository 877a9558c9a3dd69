"""What a star import brings: the names of a file that is looked at, or a refusal."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from accel_migrate.flow.program import Program
from accel_migrate.flow.scopes import Module
from accel_migrate.pipeline import migrate
from accel_migrate.source import Source

TRAIN = """
from helpers import *

loader = make_loader()
model = nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = (model(x.cuda()) - y.cuda()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
keep(model)
"""
HELPERS = """
import torch
from torch import nn


def make_loader():
    return torch.utils.data.DataLoader([(torch.randn(4), torch.randn(1))] * 8, batch_size=2)


def keep(model):
    torch.save(model.state_dict(), "model.pt")
"""


def _results(**files: str) -> dict[str, str]:
    sources = [Source.from_bytes(Path(f"{name}.py"), dedent(text).encode()) for name, text in files.items()]
    return {result.path.stem: result.reason or result.after.decode() for result in migrate(sources)}


def test_names_of_another_file_are_followed():
    results = _results(train=TRAIN, helpers=HELPERS)
    assert "accelerator.clip_grad_norm_(model.parameters(), 1.0)" in results["train"]
    assert "accelerator.save(accelerator.get_state_dict(model)" in results["helpers"]


def test_names_that_are_passed_on_by_a_second_star_import_are_followed():
    results = _results(
        train=TRAIN.replace("helpers", "middle"), middle="import torch\nfrom helpers import *\n", helpers=HELPERS
    )
    assert "accelerator.clip_grad_norm_" in results["train"]


def test_what_a_file_hides_is_not_brought():
    results = _results(train=TRAIN, helpers=HELPERS + "\n__all__ = ['make_loader', 'keep']\n")
    assert results["train"] == "no training loop" or "import *" in results["train"]


def test_names_of_a_file_out_of_sight_leave_the_loop():
    reason = _results(train="import torch\n" + TRAIN)["train"]
    assert reason == "`make_loader` comes from `from helpers import *`, which is not looked into; import it by its name"


def test_a_star_import_of_the_standard_library_is_no_trouble():
    own = "import torch\nfrom torch import nn\nfrom math import *\n" + HELPERS + "print(floor(2.5))\n"
    results = _results(train=own + TRAIN.replace("from helpers import *\n", ""))
    assert "accelerator.backward(loss)" in results["train"]


def test_files_that_pass_their_names_on_to_each_other():
    first = "import torch\nfrom second import *\n" + HELPERS
    results = _results(
        train=TRAIN.replace("helpers", "first"), first=first, second="import torch\nfrom first import *\n"
    )
    assert "accelerator.backward(loss)" in results["train"]
    circle = "import torch\nfrom second import go\n"
    results = _results(
        train=TRAIN + "go(model)\n", helpers=HELPERS + circle, second=circle.replace("second", "helpers")
    )
    assert results["train"]


def test_what_was_asked_before_a_star_import_is_spelled_out_is_answered_anew() -> None:
    texts = {"train.py": "from kit import *\nnet = Net()\n", "kit.py": "class Net: ...\n"}
    train, kit = (Module(Source.from_bytes(Path(name), text.encode())) for name, text in texts.items())
    (call,) = train.calls
    assert train.qualified(call.func) is None
    Program([train, kit])
    assert train.qualified(call.func) == "kit.Net"
