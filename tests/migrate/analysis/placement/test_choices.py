"""The GPU that the user chooses by its number is the Accelerator's on one process."""

from __future__ import annotations

import pytest

from tests.migrate.rules.verbs import migrated, unchanged

SCRIPT = """
import argparse
import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", {kind})
args = parser.parse_args()
{named}
loader = DataLoader(data, batch_size=4)
model = torch.nn.Linear(4, 1).cuda({number})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    loss = model(x.cuda({number})).mean()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("named", "number"), [("", "args.gpu"), ("GPU = args.gpu", "GPU")])
def test_a_number_that_always_is_one_names_the_device(named: str, number: str) -> None:
    text = migrated(SCRIPT.format(kind="type=int, default=0", named=named, number=number))
    assert f'accelerator = Accelerator(device=f"cuda:{{{number}}}")\n' in text
    assert ".cuda(" not in text


@pytest.mark.parametrize(
    "kind", ["type=int", "type=int, default=None", "default='0'", "type=int, nargs='+', default=0"]
)
def test_what_may_be_no_number_leaves_the_loop(kind: str) -> None:
    assert "chooses the GPU" in unchanged(SCRIPT.format(kind=kind, named="", number="args.gpu"))
