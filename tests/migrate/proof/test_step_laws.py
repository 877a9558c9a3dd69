"""The laws of operators: what is called equal is equal, measured; what mixes rows is stopped at, by name."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from accel_migrate.proof.step.conclude import StepResult
from torch import Tensor, nn

from tests.migrate.proof.stepping import Here, LossOf, answer, truth

EQUAL: dict[str, LossOf] = {
    "mean": lambda net, x, y, here: net(x).mean(),
    "mean of rows first": lambda net, x, y, here: net(x).pow(2).mean(0).sum(),
    "mean of a sum for each row": lambda net, x, y, here: net(x).pow(2).sum(1).mean(),
    "sum over the rows that there are": lambda net, x, y, here: net(x).pow(2).sum() / x.size(0),
    "each row over the rows that there are": lambda net, x, y, here: (net(x).pow(2) / len(x)).sum(),
    "sum over the batch times the processes": lambda net, x, y, here: (
        net(x).pow(2).sum() / here.batch_size * here.world
    ),
    "cross entropy": lambda net, x, y, here: F.cross_entropy(net(x), y),
    "nll": lambda net, x, y, here: F.nll_loss(F.log_softmax(net(x), 1), y),
    "nll by hand": lambda net, x, y, here: -F.log_softmax(net(x), 1).gather(1, y[:, None]).mean(),
    "mse": lambda net, x, y, here: F.mse_loss(net(x), x[:, :4]),
    "l1": lambda net, x, y, here: F.l1_loss(net(x), x[:, :4]),
    "smooth l1": lambda net, x, y, here: F.smooth_l1_loss(net(x), x[:, :4]),
    "huber": lambda net, x, y, here: F.huber_loss(net(x), x[:, :4]),
    "binary": lambda net, x, y, here: F.binary_cross_entropy_with_logits(net(x)[:, 0], (y > 1).float()),
    "binary with pos_weight": lambda net, x, y, here: F.binary_cross_entropy_with_logits(
        net(x), (x[:, :4] > 0).float(), pos_weight=torch.tensor([1.0, 2.0, 3.0, 4.0])
    ),
    "kl batchmean": lambda net, x, y, here: F.kl_div(
        F.log_softmax(net(x), 1), F.softmax(x[:, :4], 1), reduction="batchmean"
    ),
    "a penalty on weights": lambda net, x, y, here: (
        F.cross_entropy(net(x), y) + 0.01 * sum(p.pow(2).sum() for p in net.parameters())
    ),
    "two terms": lambda net, x, y, here: 0.3 * F.cross_entropy(net(x), y) - 0.7 * net(x).sigmoid().mean() / 2,
    "a weight that is a tensor": lambda net, x, y, here: torch.tensor(0.3) * F.cross_entropy(net(x), y),
    "stacked": lambda net, x, y, here: torch.stack([F.cross_entropy(net(x), y), net(x).mean()]).mean(),
    "weights of each row, mean by rows": lambda net, x, y, here: (
        F.cross_entropy(net(x), y, reduction="none") * x[:, 0].sigmoid()
    ).mean(),
    "a mask, mean by rows": lambda net, x, y, here: torch.where(y > 1, net(x)[:, 0], 0.0).mean(),
    "in place": lambda net, x, y, here: (net(x) + 1).mul_(2).relu_().mean(),
    "layer norm": lambda net, x, y, here: F.cross_entropy(F.layer_norm(net(x), (4,)), y),
    "group norm": lambda net, x, y, here: F.cross_entropy(F.group_norm(net(x), 2), y),
    "tokens": lambda net, x, y, here: net(x).view(-1, 2, 2).transpose(1, 2).flatten(0, 1).pow(2).mean(),
    "attention": lambda net, x, y, here: F.scaled_dot_product_attention(*[net(x).view(-1, 1, 2, 2)] * 3).pow(2).mean(),
    "products of each row": lambda net, x, y, here: torch.bmm(net(x).view(-1, 2, 2), x[:, :4].view(-1, 2, 2)).mean(),
    "logsumexp": lambda net, x, y, here: net(x).logsumexp(1).mean(),
    "largest of each row": lambda net, x, y, here: net(x).max(1).values.mean(),
    "clones and casts": lambda net, x, y, here: net(x.clone()).double().pow(2).mean().float(),
    "detached": lambda net, x, y, here: F.mse_loss(net(x), net(x).detach() * 0.9),
    "columns joined": lambda net, x, y, here: torch.cat([net(x), x], 1).pow(2).mean(),
    "labels made for the rows": lambda net, x, y, here: F.mse_loss(net(x)[:, 0], torch.ones(len(x))),
    "embedding": lambda net, x, y, here: (F.embedding(y, net[0].weight) @ net[2].weight.T[:6]).pow(2).mean(),
}


@pytest.mark.parametrize("loss", EQUAL.values(), ids=EQUAL)
def test_what_is_a_mean_over_rows_is_equal_for_every_number_of_processes(loss: LossOf) -> None:
    assert truth(loss, 2) and truth(loss, 4), "measured"
    assert answer(loss).told == "equal for every N"


@pytest.mark.parametrize("world", [2, 4, 8, 16])
def test_it_is_shown_for_each_number_that_shares_the_batch(world: int) -> None:
    loss = EQUAL["cross entropy"]
    assert truth(loss, world)
    assert answer(loss, worlds=(2, world) if world > 2 else (2, 4)).result is StepResult.EQUAL


def drawn(net: nn.Module, x: Tensor, y: Tensor, here: Here) -> Tensor:
    return F.cross_entropy(net(F.dropout(x, 0.5)), y)


def test_random_numbers_of_each_row_are_taken_as_they_are_drawn() -> None:
    assert answer(drawn).result is StepResult.EQUAL


STOPPED: dict[str, tuple[LossOf, str]] = {
    "one draw for all": (
        lambda net, x, y, here: net(x * torch.rand(1)).mean(),
        "rand at train.py:1 draws random numbers for all rows of a batch together",
    ),
    "mixed samples": (lambda net, x, y, here: net(x[torch.randperm(len(x))]).mean(), "randperm"),
    "rows by their number": (
        lambda net, x, y, here: (net(x)[:, 0] * torch.arange(len(x))).mean(),
        "arange at train.py:1 takes other numbers on other numbers of processes (16, 8, 4)",
    ),
    "the first rows": (lambda net, x, y, here: net(x)[: len(x) // 2].mean(), "slice at train.py:1"),
    "turned rows": (lambda net, x, y, here: (net(x) * net(x).flip(0)).mean(), "flip"),
    "a hand-made operator": (lambda net, x, y, here: torch.cdist(net(x), net[2].weight[:3, :4]).mean(), "cdist"),
    "rows taken apart": (lambda net, x, y, here: net(x).t().reshape(-1, 4).softmax(1)[:, 0].mean(), ""),
    "a number that Python reads": (
        lambda net, x, y, here: F.cross_entropy(net(x), y) / max(1, int((y >= 0).any().item())),
        "Python reads a whole number",
    ),
    "smoothed labels, a mean over targets that are not ignored": (
        lambda net, x, y, here: F.cross_entropy(net(x), y, label_smoothing=0.1),
        "sum at train.py:1 takes all rows of a batch together",
    ),
    "chosen rows": (lambda net, x, y, here: net(x[y > 0]).mean(), ""),
}


@pytest.mark.parametrize(("loss", "named"), STOPPED.values(), ids=STOPPED)
def test_what_is_not_known_is_said_with_the_operator(loss: LossOf, named: str) -> None:
    found = answer(loss)
    assert found.result is not StepResult.EQUAL
    assert named in found.why
