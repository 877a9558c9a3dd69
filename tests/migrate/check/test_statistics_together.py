"""AM972: figures that are put together come from one network, its running statistics included."""

from __future__ import annotations

import pytest
from accel_migrate.check import statistics_together
from accel_migrate.flow.nodes import walk

from tests.migrate.check.reading import said
from tests.migrate.rules.verbs import migrated, unchanged

SCRIPT = """
    import torch
    import torchvision
    from torch import nn
    from torch.utils.data import DataLoader

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)
        def forward(self, x):
            return self.norm(x)

    def validate(encoder, head, rows):
        encoder.eval()
        total = 0
        with torch.no_grad():
            for x, y in rows:
                x, y = x.cuda(), y.cuda()
                total += nn.functional.mse_loss(head(encoder(x)), y).item()
        print(total / len(rows))

    rows, held_out = DataLoader(data(), batch_size=4, shuffle=True), DataLoader(more(), batch_size=4)
    backbone = {built}.cuda()
    head = nn.Linear(4, 1).cuda()
    optimizer = torch.optim.Adam(head.parameters())
    for epoch in range(3):
        backbone.{mode}()
        for x, y in rows:
            x, y = x.cuda(), y.cuda()
            loss = nn.functional.mse_loss(head(backbone(x)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        validate(backbone, head, held_out)
"""


@pytest.mark.parametrize(
    "built",
    ["Block()", "nn.Sequential(nn.Linear(4, 4), Block())", "torchvision.models.resnet18()", "nn.BatchNorm1d(4)"],
)
def test_a_network_that_nothing_trains_takes_statistics(built: str) -> None:
    assert "running statistics" in unchanged(SCRIPT.format(built=built, mode="train"))


@pytest.mark.parametrize("built, mode", [("Block()", "eval"), ("nn.Linear(4, 4)", "train")])
def test_a_network_without_statistics_or_in_evaluation_mode(built: str, mode: str) -> None:
    assert "sum_for_metrics" in migrated(SCRIPT.format(built=built, mode=mode))


def test_a_network_that_is_prepared() -> None:
    result = (
        "from accel_runtime import Accelerator\nfrom torch import nn\naccelerator = Accelerator()\n"
        "net = accelerator.prepare(nn.BatchNorm1d(4))\nnet.train()\nfor x in rows:\n    accelerator.sum_for_metrics(net(x))\n"
    )
    assert not said("AM972", "x = 1\n", result)
    assert said("AM972", "x = 1\n", result.replace("accelerator.prepare(nn.BatchNorm1d(4))", "nn.BatchNorm1d(4)"))


def test_names_that_are_built_of_each_other_are_read_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    monkeypatch.setattr(statistics_together, "walk", lambda node: read.append(node) or walk(node))
    names = [f"part{number}" for number in range(12)]
    built = "".join(f"{name} = blend({', '.join(names)})\n" for name in names)
    result = (
        "from accel_runtime import Accelerator\naccelerator = Accelerator()\n"
        f"{built}part0.train()\nfor x in rows:\n    accelerator.sum_for_metrics(part0(x))\n"
    )
    assert not said("AM972", "x = 1\n", result)
    assert len(read) < 30
