"""A loss of the script's own that holds no tensors is not moved; anything that may hold one is."""

from __future__ import annotations

import pytest

from tests.migrate.analysis.reading import BUILT, TRAINED, dropped, kept

SMOOTHED = """
class Smoothed(nn.Module):
    def __init__(self, classes, epsilon=0.1):
        super().__init__()
        self.classes = classes
        self.epsilon = epsilon
        self.logarithm = nn.LogSoftmax(dim=1)

    def forward(self, scores, labels):
        return -(self.logarithm(scores) * labels).mean() * self.epsilon
"""


def made(loss: str = SMOOTHED, how: str = "criterion = Smoothed(2).cuda()\n") -> str:
    return BUILT + loss + how + TRAINED


def test_a_loss_of_plain_numbers_is_not_moved() -> None:
    assert "Smoothed(2).cuda()" in dropped(made())


def test_under_another_name_it_is_not_either() -> None:
    assert "plain.cuda()" in dropped(made(how="plain = Smoothed(2)\ncriterion = plain.cuda()\n"))


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        ("nn.LogSoftmax(dim=1)", "nn.Linear(2, 2)"),
        ("nn.LogSoftmax(dim=1)", "make_layer()"),
        ("self.classes = classes", "self.classes = nn.Parameter(torch.ones(classes))"),
        ("self.classes = classes", "self.register_buffer('classes', torch.ones(classes))"),
        ("self.classes = classes", "self.classes = SHARED"),
        ("epsilon=0.1", "epsilon=nn.Linear(2, 2)"),
        ("class Smoothed(nn.Module)", "class Base(nn.Module):\n    pass\n\nclass Smoothed(Base)"),
    ],
)
def test_a_loss_that_may_hold_tensors_is_moved(said: str, instead: str) -> None:
    assert "Smoothed(2).cuda()" in kept(made(SMOOTHED.replace(said, instead)))


@pytest.mark.parametrize(
    "how",
    [
        "criterion = Smoothed(weights).cuda()\n",
        "plain = Smoothed(2)\nplain.extra = nn.Linear(2, 2)\ncriterion = plain.cuda()\n",
        "plain = Smoothed(2)\nif wanted:\n    plain = other\ncriterion = plain.cuda()\n",
    ],
)
def test_a_loss_that_is_given_more_than_numbers_is_moved(how: str) -> None:
    assert any("cuda()" in each for each in kept(made(how=how)))
