"""Wrong scalings and missing exchanges: none is called equal, and nearly all are called different, with the reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from accel_migrate.proof.step.conclude import StepResult
from torch import Tensor, nn

from tests.migrate.proof.stepping import Gradients, Here, LossOf, answer, mean, model


def entropy(net: nn.Module, x: Tensor, y: Tensor, here: Here) -> Tensor:
    return F.cross_entropy(net(x), y)


def with_norm() -> nn.Module:
    return nn.Sequential(model(), nn.BatchNorm1d(4))


def alone(ranks: list[Gradients]) -> list[Gradients]:
    return ranks


def summed(ranks: list[Gradients]) -> list[Gradients]:
    return [[each * len(ranks) for each in one] for one in mean(ranks)]


def without_the_last(ranks: list[Gradients]) -> list[Gradients]:
    """One parameter is outside of the model that was prepared."""
    return [[*shared[:-1], own[-1]] for shared, own in zip(mean(ranks), ranks)]


def of_the_first(ranks: list[Gradients]) -> list[Gradients]:
    return [ranks[0]] * len(ranks)


def clipped_before(ranks: list[Gradients]) -> list[Gradients]:
    norms = [torch.stack([each.norm() for each in one]).norm() for one in ranks]
    return mean([[each * 0.1 / norm for each in one] for one, norm in zip(ranks, norms)])


def mean_of_a_fixed_number(ranks: list[Gradients]) -> list[Gradients]:
    return [[each * len(ranks) / 8 for each in one] for one in mean(ranks)]


def twice(ranks: list[Gradients]) -> list[Gradients]:
    """Divided by the processes once more, by hand."""
    return [[each / len(ranks) for each in one] for one in mean(ranks)]


@dataclass(frozen=True)
class Mutant:
    name: str
    before: LossOf = entropy
    after: LossOf | None = None  # the same
    how: dict[str, Any] = field(default_factory=dict)
    told: str = ""  # a part of the reason
    different: bool = True


WEIGHTS = torch.tensor([1.0, 2.0, 0.5, 4.0])
MUTANTS = (
    Mutant("summed loss", lambda net, x, y, here: F.cross_entropy(net(x), y, reduction="sum"), told="scaled by 1/N"),
    Mutant("summed squares", lambda net, x, y, here: net(x).pow(2).sum(), told="scaled by 1/N"),
    Mutant(
        "divided by the whole batch",
        lambda net, x, y, here: net(x).pow(2).sum() / here.batch_size,
        told="scaled by 1/N",
    ),
    Mutant(
        "rows divided by the whole batch",
        lambda net, x, y, here: (F.cross_entropy(net(x), y, reduction="none") / here.batch_size).sum(),
        told="scaled by 1/N",
    ),
    Mutant("times the processes", after=lambda net, x, y, here: entropy(net, x, y, here) * here.world, told="by N "),
    Mutant("over the processes", after=lambda net, x, y, here: entropy(net, x, y, here) / here.world, told="by 1/N"),
    Mutant(
        "times the square of them", after=lambda net, x, y, here: entropy(net, x, y, here) * here.world**2, told="N**2"
    ),
    Mutant("halved", after=lambda net, x, y, here: entropy(net, x, y, here) / 2 ** (here.world > 1), told="by 0.5 on"),
    Mutant(
        "mean taken twice",
        after=lambda net, x, y, here: entropy(net, x, y, here) / len(x),
        told="the gradient is scaled",
    ),
    Mutant("sum in the place of a mean", lambda net, x, y, here: net(x).mean(), lambda net, x, y, here: net(x).sum()),
    Mutant("accumulation not divided", lambda n, x, y, h: entropy(n, x, y, h) / 4, entropy, told="by 4 on 2"),
    Mutant(
        "accumulation divided twice",
        lambda n, x, y, h: entropy(n, x, y, h) / 4,
        lambda n, x, y, h: entropy(n, x, y, h) / 16,
    ),
    Mutant("sign lost", after=lambda net, x, y, here: -entropy(net, x, y, here), told="scaled by -1"),
    Mutant(
        "penalty over the processes",
        lambda net, x, y, here: entropy(net, x, y, here) + net[0].weight.pow(2).sum() / here.world,
        told="scaled by 1/N",
    ),
    Mutant(
        "one of two terms summed",
        lambda net, x, y, here: entropy(net, x, y, here) + 0.1 * net(x).pow(2).sum(),
        told="scaled by 1/N (pow",
    ),
    Mutant("a term lost", lambda n, x, y, h: entropy(n, x, y, h) + n(x).pow(2).mean(), entropy, told="other terms"),
    Mutant(
        "weights of classes", lambda net, x, y, here: F.cross_entropy(net(x), y, weight=WEIGHTS), told="weighted mean"
    ),
    Mutant(
        "weighted mean by hand",
        lambda net, x, y, here: (F.cross_entropy(net(x), y, reduction="none") * WEIGHTS[y]).sum() / WEIGHTS[y].sum(),
        told="sum at",
    ),
    Mutant("ignored targets", lambda net, x, y, here: F.cross_entropy(net(x), y, ignore_index=2), told="not ignored"),
    Mutant(
        "masked mean",
        lambda net, x, y, here: (net(x)[:, 0].pow(2) * (y > 1)).sum() / (y > 1).sum(),
        told="sum at",
    ),
    Mutant("root of a mean", lambda net, x, y, here: F.mse_loss(net(x), x[:, :4]).sqrt(), told="mse_loss at"),
    Mutant("logarithm of a mean", lambda net, x, y, here: net(x).exp().mean().log(), told="mean at"),
    Mutant("product of means", lambda n, x, y, h: entropy(n, x, y, h) * n(x).pow(2).mean(), told=" at train.py"),
    Mutant("batch norm", how={"make": with_norm}, told="native_batch_norm at train.py:1 mixes rows"),
    Mutant("centred over the batch", lambda net, x, y, here: (net(x) - net(x).mean(0)).pow(2).mean(), told="mean at"),
    Mutant("largest of the batch", lambda net, x, y, here: net(x).max(), told="max at"),
    Mutant(
        "rows against each other",
        lambda net, x, y, here: F.cross_entropy(net(x) @ net(x).t(), torch.arange(len(x))),
        told="arange at",
    ),
    Mutant("all pairs", lambda net, x, y, here: (net(x) @ net(x).t()).pow(2).mean(), told="mm at"),
    Mutant("exchange left out", how={"exchange": alone}, told="is not exchanged before the step"),
    Mutant("a parameter outside of the model", how={"exchange": without_the_last}, told="parameter 4 is not exchanged"),
    Mutant("summed over the processes", how={"exchange": summed}, told="not the mean"),
    Mutant("divided twice", how={"exchange": twice}, told="not the mean"),
    Mutant("divided by a fixed number", how={"exchange": mean_of_a_fixed_number}, told="not the mean"),
    Mutant("the first one's for all", how={"exchange": of_the_first}, told="not the mean"),
    Mutant("clipped before the exchange", how={"exchange": clipped_before}, told="not the mean"),
    Mutant(
        "a number for each process, where dropout keeps it from being measured",
        lambda net, x, y, here: F.cross_entropy(net(F.dropout(x, 0.2)), y),
        lambda net, x, y, here: F.cross_entropy(net(F.dropout(x, 0.2)), y) * (1 + here.rank),
        told="by 1 on 2 processes, 2 on 2 processes",
    ),
    Mutant("the loader not sharded", how={"whole": True}, told="every process trains on the whole batch"),
    Mutant(
        "another activation", after=lambda net, x, y, here: F.cross_entropy(net(x).relu(), y), told="other operators"
    ),
    Mutant(
        "another number inside",
        lambda net, x, y, here: F.cross_entropy(net(x) * here.world, y),
        told="takes other numbers",
    ),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_called_different(mutant: Mutant) -> None:
    found = answer(mutant.before, mutant.after, **mutant.how)
    assert found.result is (StepResult.DIFFERENT if mutant.different else StepResult.UNKNOWN), found.told
    assert mutant.told in found.why
