"""DeepSpeed's file with the sections `optimizer` and `scheduler`: a script with stand-ins trains as one with its own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from accel_runtime import Accelerator
from accel_runtime.errors import ConfigError
from accel_runtime.utils import DummyOptim, DummyScheduler
from torch.utils.data import DataLoader

from tests.distributed.test_deepspeed import batches, loss_of
from tests.distributed.transformer import GLOBAL_BATCH, sentences, small_transformer
from tests.distributed.worlds import in_world
from tests.distributed.zero import PATIENCE, accelerator, needs_deepspeed

pytestmark = needs_deepspeed

RATE, STEPS, WARMUP = 1e-2, 8, 3
FILE: dict[str, Any] = {
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto", "torch_adam": True}},
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {
            "warmup_min_lr": "auto",
            "warmup_max_lr": "auto",
            "warmup_num_steps": "auto",
            "total_num_steps": "auto",
        },
    },
}


def rate_at(step: int) -> float:
    """Of DeepSpeed's WarmupDecayLR: it rises with the logarithm, then falls in a line, and is one step behind."""
    count = max(step - 1, 0)
    rising, falling = math.log(count + 1) / math.log(WARMUP), (STEPS - count) / (STEPS - WARMUP)
    return RATE * (rising if count < WARMUP else falling)


def trained(
    ours: Accelerator, stands_in: bool, load: Path | None = None, save: Path | None = None, steps: int = STEPS
) -> tuple[list[float], list[float]]:
    """Losses and learning rates of some steps, after those that a state has behind it."""
    model = small_transformer()
    loader: Any = DataLoader(sentences(), GLOBAL_BATCH // ours.num_processes)
    optimizer: Any
    if stands_in:
        optimizer = DummyOptim(model.parameters(), lr=RATE, weight_decay=0.1)
        total = STEPS * ours.num_processes  # a script counts the batches of its loader before it is prepared
        scheduler: Any = DummyScheduler(optimizer, total_num_steps=total, warmup_num_steps=WARMUP)
        model, optimizer, loader, scheduler = ours.prepare(model, optimizer, loader, scheduler)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate_at(0), weight_decay=0.1)
        model, optimizer, loader = ours.prepare(model, optimizer, loader)
    seen = 0
    if load is not None:
        ours.load_state(load)
        seen = STEPS // 2
    losses, rates = [], []
    for number, (words, following) in enumerate(batches(loader)):
        if number < seen:
            continue
        if len(losses) == steps:
            break
        rates.append(optimizer.param_groups[0]["lr"])
        loss = loss_of(model, words, following)
        ours.backward(loss)
        optimizer.step()
        if stands_in:
            scheduler.step()
        else:
            optimizer.param_groups[0]["lr"] = rate_at(number + 1)
        optimizer.zero_grad()
        losses.append(loss.item())
    if save is not None:
        ours.save_state(save)
    return losses, rates


@pytest.mark.parametrize("stage", [2, 3])
def test_what_the_file_describes_trains_as_what_the_script_builds(stage: int, tmp_path: Path) -> None:
    def engine(config: dict[str, Any] | None) -> Accelerator:
        return accelerator(steps=1, zero_stage=stage, hf_ds_config=config)

    def work() -> list[tuple[list[float], list[float]]]:
        half = STEPS // 2
        return [
            trained(engine(None), stands_in=False),
            trained(engine(FILE), stands_in=True),
            trained(engine(FILE), stands_in=True, save=tmp_path / "half", steps=half),
            trained(engine(FILE), stands_in=True, load=tmp_path / "half", steps=half),
        ]

    for own, described, first, rest in in_world(2, work, PATIENCE):
        assert described[1] == pytest.approx([rate_at(step) for step in range(STEPS)])
        assert described[0] == pytest.approx(own[0], rel=1e-6)
        assert ([*first[0], *rest[0]], [*first[1], *rest[1]]) == described


def test_an_optimizer_of_the_script_beside_one_of_the_file_is_refused() -> None:
    def work() -> str:
        ours = accelerator(steps=1, zero_stage=2, hf_ds_config={"optimizer": FILE["optimizer"]})
        model = small_transformer()
        DummyOptim(model.parameters(), lr=RATE)
        with pytest.raises(ConfigError) as caught:
            ours.prepare(model, torch.optim.AdamW(model.parameters()))
        return str(caught.value)

    (told,) = in_world(1, work, PATIENCE)
    assert "the section 'optimizer' would build what the script builds itself" in told
    assert "or build it with accel_runtime.utils.DummyOptim" in told
