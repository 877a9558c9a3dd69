"""AM901: other engines, and ways to train that are not data parallel."""

from __future__ import annotations

import pytest

from tests.migrate.rules.verbs import unchanged

SCRIPT = """
    import apex
    import torch
    import torch.multiprocessing as mp
    from torch import nn
    from torch.distributed.fsdp import fully_shard

    loader = torch.utils.data.DataLoader(data(), batch_size=4)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {line}
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('model, optimizer = apex.amp.initialize(model, optimizer, opt_level="O1")', "apex"),
        ("fully_shard(model)", "FSDP"),
        ("mp.Process(target=work, args=(model,)).start()", "one by one"),
        ('a, b = model.first.to("cuda:0"), model.second.to("cuda:1")', "different cards (cuda:0, cuda:1)"),
    ],
)
def test_what_no_rewrite_carries_over_is_named(line, reason):
    assert reason in unchanged(SCRIPT.format(line=line))


def test_a_backward_pass_out_of_sight_is_named():
    source = SCRIPT.format(line="loss_scaler = NativeScaler()").replace(
        "        loss.backward()\n        optimizer.step()\n", "        loss_scaler(loss, optimizer, clip_grad=1.0)\n"
    )
    assert "loss_scaler() runs the backward pass" in unchanged(source)
