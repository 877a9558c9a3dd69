"""What is prepared as the model is what the loss is computed through; where that is not known, the loop is left."""

from __future__ import annotations

import pytest

from tests.migrate.analysis.reading import BUILT, TRAINED, prepared, refusal

LOSS = "loss = nn.functional.mse_loss(model(x), y)"


def with_loss(lines: str, before: str = "") -> str:
    inner = lines.replace("\n", "\n        ")
    return BUILT + before + TRAINED.replace(LOSS, inner)


@pytest.mark.parametrize(
    "lines",
    [
        "loss = model(x).sum()",
        "out = model(x)\nloss = out.sum()",
        "loss = 0\nfor part in x:\n    loss += model(part).sum()",
        "losses = []\nlosses.append(model(x).sum())\nloss = sum(losses)",
        "parts = {}\nparts['a'] = model(x).sum()\nloss = parts['a']",
        "def both():\n    return model(x).sum(), 1\nloss, _ = both()",
        "loss = helpers.compute(model, x)",
        "out = model(x)\nloss = out['loss'] if many else out.loss",
        "h = model[0](x)\nloss = model(h).sum()",
    ],
)
def test_finds_the_model_behind_the_loss(lines: str) -> None:
    assert prepared(with_loss(lines)) == ["model", "optimizer", "loader"]


def test_a_criterion_that_is_a_module_is_not_the_model() -> None:
    criterion = "class Distance(nn.Module):\n    def forward(self, a, b):\n        return (a - b).sum()\n\nmeasure = Distance()\n"
    assert prepared(with_loss("loss = measure(model(x), y)", criterion)) == ["model", "optimizer", "loader"]


def test_a_criterion_is_not_prepared_in_the_place_of_a_model_that_is_not_known() -> None:
    text = """
        import torch
        from torch import nn
        from elsewhere import Base

        class Distance(nn.Module):
            def forward(self, a, b):
                return (a - b).abs().mean()

        class Run(Base):
            def fit(self):
                batches = torch.utils.data.DataLoader(data)
                optimizer = torch.optim.Adam(self.network.parameters())
                measure = Distance()
                for x, y in batches:
                    loss = measure(self.network(x), y)
                    loss.backward()
                    optimizer.step()

        Run().fit()
        """
    assert "`self.network`" in refusal(text)


@pytest.mark.parametrize(
    "made", ["out, stepper = spread(model, optimizer)", "out, stepper = backend.spread(model, optimizer)"]
)
def test_what_a_backend_made_of_the_model_is_not_the_model(made: str) -> None:
    spread = "def spread(model, optimizer):\n    return Wrapped(model), optimizer\n"
    text = with_loss("loss = out(x).sum()", f"{spread}{made}\n").replace(
        "optimizer.step()", "stepper.step()\n        stepper.zero_grad()"
    )
    assert "the loss is computed through `out`" in refusal(text)


def test_a_model_inside_of_what_makes_the_loss_is_left() -> None:
    wrapped = "class Task(nn.Module):\n    def __init__(self, net):\n        self.net = net\n\ntask = Task(model)\n"
    assert "the optimizer updates `model`, and the loss is computed through `task`" in refusal(
        with_loss("loss = task(x)", wrapped)
    )


def test_a_wrapper_under_a_name_of_its_own_is_what_is_prepared() -> None:
    text = with_loss("loss = spread(x).sum()", "spread = nn.DataParallel(model)\n")
    assert prepared(text) == ["spread", "optimizer", "loader"]
