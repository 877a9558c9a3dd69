"""Why a training is left whose batches a wrapper moved: only where it did, in the words of the file it is in."""

from __future__ import annotations

import pytest

from tests.migrate.analysis.reading import prepared, refusal

SCRIPT = """
import torch
from steps import judge
from torch import nn
from torch.utils.data import DataLoader

loader = DataLoader(data, batch_size=4)
test_loader = DataLoader(data, batch_size=4)
model = nn.DataParallel(nn.Linear(4, 2)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in loader:
    loss = nn.functional.mse_loss(model({trained}), batch["y"].cuda())
    loss.backward()
    optimizer.step()
    {then}
for batch in test_loader:
    {judged}
"""
MOVED = 'batch["x"].cuda()'
REASON = "`{}` is moved by the wrapper of its model, which goes; move it to the device first"


def test_names_what_the_model_is_handed() -> None:
    script = SCRIPT.format(trained=MOVED, then="", judged='judge(model(batch["x"]))')
    assert refusal(script) == REASON.format("batch")


def test_names_what_a_function_of_another_file_hands_to_the_model() -> None:
    steps = "# steps.py\n\n\ndef judge(net, given_rows):\n    return net(given_rows).mean()\n"
    script = SCRIPT.format(trained=MOVED, then="", judged="judge(model, batch)")
    assert refusal(script, steps) == REASON.format("given_rows")


def test_a_loader_that_leaves_batches_where_they_are_does_not_move_what_dataparallel_did() -> None:
    script = SCRIPT.format(trained='batch["x"]', then='print(sorted(batch["names"]))', judged="pass")
    assert refusal(script) == REASON.format("batch")


@pytest.mark.parametrize("judged", ['print(sorted(batch["names"]))', f"judge(model({MOVED}), batch['names'])"])
def test_what_the_model_is_not_handed_was_not_moved_by_it(judged: str) -> None:
    assert prepared(SCRIPT.format(trained=MOVED, then="", judged=judged))


BY_DDP = SCRIPT.replace("nn.DataParallel(nn.Linear(4, 2)).cuda()", "nn.parallel.DistributedDataParallel(net{told})")


def by_ddp(told: str) -> str:
    script = BY_DDP.replace("{told}", told).format(trained=MOVED, then="", judged='judge(model(batch["x"]))')
    return script.replace("model = nn", "net = nn.Linear(4, 2).cuda()\nmodel = nn")


@pytest.mark.parametrize("told", [", device_ids=[0]", ", [0]"])
def test_distributed_data_parallel_that_is_told_a_gpu_moves_what_its_model_is_handed(told: str) -> None:
    assert refusal(by_ddp(told)) == REASON.format("batch")


@pytest.mark.parametrize("told", [", device_ids=None", ""])
def test_distributed_data_parallel_that_is_told_no_gpu_moves_nothing(told: str) -> None:
    assert prepared(by_ddp(told))
