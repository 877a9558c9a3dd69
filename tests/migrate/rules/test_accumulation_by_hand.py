"""AM306: accumulation by hand stays, and is spoken of."""

from __future__ import annotations

import pytest

from tests.migrate.rules.verbs import migrated, noted

SCRIPT = """
    import torch
    from torch import nn

    loader = torch.utils.data.DataLoader(data(), batch_size=4)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, (x, y) in enumerate(loader):
        loss = nn.functional.mse_loss(model(x), y) / 4
        loss.backward()
        if {condition}:
            optimizer.step()
            optimizer.zero_grad()
    """


def test_division_and_condition_stay():
    text = migrated(SCRIPT.format(condition="(i + 1) % 4 == 0"))
    assert "/ 4\n" in text
    assert "if (i + 1) % 4 == 0:\n        optimizer.step()" in text
    assert "gradient_accumulation_steps" not in text


@pytest.mark.parametrize("condition", ["(i + 1) % 4 == 0", "not (i + 1) % 4", "i % 4 == 3 or i + 1 == len(loader)"])
def test_every_few_batches_is_noted(condition):
    assert "gradient_accumulation_steps=4" in noted(SCRIPT.format(condition=condition), "AM306")


def test_a_step_under_another_condition_is_not_spoken_of():
    with pytest.raises(AssertionError, match="no AM306"):
        noted(SCRIPT.format(condition="loss.isfinite()"), "AM306")
