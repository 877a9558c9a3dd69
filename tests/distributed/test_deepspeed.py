"""DeepSpeed's engine on real processes: ZeRO 1, 2 and 3 train as one process does, in half of the memory."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from accel_runtime import Accelerator
from torch import nn
from torch.utils.data import DataLoader

from tests.distributed.transformer import (
    GLOBAL_BATCH,
    alone,
    relative_distance,
    sentences,
    small_transformer,
    train,
)
from tests.distributed.worlds import in_world
from tests.distributed.zero import PATIENCE, SHARDED, accelerator, needs_deepspeed
from tests.warm import python

pytestmark = needs_deepspeed


IN_ENGINE = {"bf16": {"enabled": "auto"}}
FULL: dict[str, dict[str, Any]] = {
    "ZeRO 1": {"zero_stage": 1},
    "ZeRO 2": {"zero_stage": 2},
    "ZeRO 3": {"zero_stage": 3, "hf_ds_config": SHARDED},
    "ZeRO 2, optimizer on the CPU": {"zero_stage": 2, "offload_optimizer_device": "cpu"},
    "ZeRO 3, all on the CPU": {"zero_stage": 3, "offload_optimizer_device": "cpu", "offload_param_device": "cpu"},
}
NARROW: dict[str, dict[str, Any]] = {
    "ZeRO 1": {"zero_stage": 1},
    "ZeRO 2": {"zero_stage": 2},
    "ZeRO 3": {"zero_stage": 3, "hf_ds_config": SHARDED},
    "ZeRO 2 with the engine's own bf16": {"zero_stage": 2, "hf_ds_config": IN_ENGINE},
    "ZeRO 3 with the engine's own bf16": {"zero_stage": 3, "hf_ds_config": {**SHARDED, **IN_ENGINE}},
}


def distances(runs: dict[str, list[float]]) -> dict[str, float]:
    expected = alone().losses
    return {name: relative_distance(losses, expected) for name, losses in runs.items()}


SOME = {"ZeRO 2", "ZeRO 3 with the engine's own bf16"}


@pytest.mark.parametrize(
    "names", [SOME, pytest.param({*FULL, *NARROW} - SOME, marks=pytest.mark.full)], ids=["some", "others"]
)
def test_every_stage_trains_as_one_process_with_the_same_global_batch(names: set[str]) -> None:
    def work() -> list[dict[str, list[float]]]:
        return [
            {name: train(accelerator(precision, **plugin)).losses for name, plugin in cases.items() if name in names}
            for precision, cases in (("no", FULL), ("bf16", NARROW))
        ]

    (full, narrow), others = in_world(2, work, PATIENCE)
    assert {name: far for name, far in distances(full).items() if far > 1e-4} == {}
    assert {name: far for name, far in distances(narrow).items() if far > 0.02} == {}
    assert others == [full, narrow]
    assert all(losses[-1] < losses[0] / 2 for losses in full.values())


def batches(loader: Any) -> Any:
    """Words with the words that follow them."""
    for (words,) in loader:
        yield words[:, :-1], words[:, 1:]


def loss_of(model: nn.Module, words: Any, following: Any) -> torch.Tensor:
    return nn.functional.cross_entropy(model(words).flatten(0, 1), following.flatten())


def test_zero_3_keeps_half_of_everything_on_each_of_two_processes() -> None:
    def work() -> dict[str, float]:
        from deepspeed.utils import safe_get_local_fp32_param, safe_get_local_grad

        ours = accelerator(steps=1, zero_stage=3, hf_ds_config=SHARDED)
        model = small_transformer()
        whole = sum(weight.numel() for weight in model.parameters())
        optimizer = torch.optim.AdamW(model.parameters())
        model, optimizer, loader = ours.prepare(model, optimizer, DataLoader(sentences(), 4))
        ours.backward(loss_of(model, *next(batches(loader))))
        weights = list(model.parameters())
        gradients = sum(safe_get_local_grad(weight).numel() for weight in weights)
        assert all(weight.grad is None for weight in weights)
        optimizer.step()
        moments = [value for state in optimizer.state.values() for value in state.values() if value.dim()]
        assert not sum(weight.numel() for weight in weights), "a whole weight was left on this process"
        strategy = ours._session.strategy
        kept = strategy.kept_state(model), strategy.optimizer_state(optimizer.optimizer)["state"]
        assert [len(state) for state in kept] == ([len(weights)] * 2 if ours.is_main_process else [0, 0])
        return {
            "weights": sum(weight.ds_tensor.numel() for weight in weights) / whole,
            "weights in full precision": sum(safe_get_local_fp32_param(weight).numel() for weight in weights) / whole,
            "gradients": gradients / whole,
            "optimizer": sum(moment.numel() for moment in moments) / (2 * whole),
        }

    for shares in in_world(2, work, PATIENCE):
        assert shares == pytest.approx(dict.fromkeys(shares, 0.5), abs=0.01)


def go_on(ours: Accelerator, folder: Path, load: Path | None, seen: int, steps: int = 6) -> tuple[list[float], float]:
    """Losses of some steps after `seen` batches, beginning with a state if one is given, and leaving one; the rate."""
    model = small_transformer()
    decayed = [weight for weight in model.parameters() if weight.dim() > 1]
    others = [weight for weight in model.parameters() if weight.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": others, "weight_decay": 0.0}, {"params": decayed, "lr": 5e-3}], lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    loader = DataLoader(sentences(), GLOBAL_BATCH // ours.num_processes)
    model, optimizer, scheduler = ours.prepare(model, optimizer, scheduler)
    if load is not None:
        ours.load_state(load)
    losses = []
    for words, following in list(batches(ours.prepare(loader)))[seen : seen + steps]:
        loss = loss_of(model, words, following)
        ours.backward(loss)
        ours.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(ours.reduce(loss.detach(), "mean").item())
    ours.save_state(folder)
    return losses, optimizer.param_groups[0]["lr"]


def test_a_state_goes_on_under_any_stage_any_number_of_processes_and_any_other_strategy(tmp_path: Path) -> None:
    stages: dict[str, dict[str, Any]] = {
        "ZeRO 1": {"zero_stage": 1},
        "ZeRO 2": {"zero_stage": 2, "offload_optimizer_device": "cpu"},
        "ZeRO 3": {"zero_stage": 3, "hf_ds_config": SHARDED},
    }

    def plain() -> Accelerator:
        return Accelerator(cpu=True)

    def work() -> dict[tuple[str, str], tuple[list[float], float]]:
        for name, plugin in stages.items():
            go_on(accelerator(steps=1, **plugin), tmp_path / name, None, 0)
        pairs = {
            ("ZeRO 1", "ZeRO 1"),
            ("ZeRO 2", "ZeRO 3"),
            ("ZeRO 3", "ZeRO 3"),
            ("ZeRO 3", "ZeRO 2"),
            ("one", "ZeRO 3"),
        }
        return {
            (saved, other): go_on(accelerator(steps=1, **stages[other]), tmp_path / "again", tmp_path / saved, 6)
            for saved, other in sorted(pairs)
        }

    def resume_alone() -> tuple[list[float], float]:
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            del os.environ[name]  # as under plain python, without a launcher
        return go_on(accelerator(steps=1, **stages["ZeRO 2"]), tmp_path / "again", tmp_path / "ZeRO 3", 6)

    go_on(plain(), tmp_path / "one", None, 0)
    control, _ = go_on(plain(), tmp_path / "again", tmp_path / "one", 6)
    for pair, (losses, rate) in in_world(2, work, PATIENCE)[0].items():
        assert losses == pytest.approx(control, rel=1e-5), pair
        assert rate == pytest.approx(1e-2 * 0.99**12), pair
    for saved in stages:
        losses, _ = go_on(plain(), tmp_path / "again", tmp_path / saved, 6)
        assert losses == pytest.approx(control, rel=1e-5), saved
    ((losses, _),) = in_world(1, resume_alone, PATIENCE)
    assert losses == pytest.approx(control, rel=1e-5)


def test_the_engine_s_own_bf16_goes_on_to_the_bit(tmp_path: Path) -> None:
    def work() -> dict[int, tuple[list[float], list[float]]]:
        told = {}
        for stage in (1, 2, 3):
            plugin = {"zero_stage": stage, "hf_ds_config": {**SHARDED, **IN_ENGINE}}
            whole, _ = go_on(accelerator("bf16", 1, **plugin), tmp_path / "whole", None, 0, steps=6)
            go_on(accelerator("bf16", 1, **plugin), tmp_path / "half", None, 0, steps=3)
            rest, _ = go_on(accelerator("bf16", 1, **plugin), tmp_path / "again", tmp_path / "half", 3, steps=3)
            told[stage] = (whole[3:], rest)
        return told

    for told in in_world(2, work, PATIENCE):
        for stage, (whole, rest) in told.items():
            assert rest == whole, stage


SCRIPT = """
import json, sys
import torch
from accel_runtime import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(gradient_accumulation_steps=2)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 33), nn.Tanh(), nn.Linear(33, 1))
model.config = {"width": 33}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=40)
inputs = torch.randn(160, 6)
loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
losses, norms = [], []
for batch, target in loader:
    with accelerator.accumulate(model):
        with accelerator.autocast():
            output = model(batch)
        loss = nn.functional.mse_loss(output, target)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            norms.append(accelerator.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    losses.append(accelerator.gather(loss.detach()).mean().item())
accelerator.save_state(sys.argv[1])
accelerator.load_state(sys.argv[1])
weights = accelerator.get_state_dict(model)
inner = accelerator.unwrap_model(model)
if accelerator.is_main_process:
    told = {
        "kind": str(accelerator.distributed_type),
        "file": accelerator.state.deepspeed_plugin and accelerator.state.deepspeed_plugin.deepspeed_config,
        "losses": losses,
        "norms": norms,
        "sums": {name: weight.double().sum().item() for name, weight in weights.items()},
        "inner": [type(inner).__name__, model.config],
        "rate": scheduler.get_last_lr(),
    }
    sys.stdout.write(json.dumps(told) + "\\n")
accelerator.end_training()
"""


def launched(script: Path, *flags: str) -> dict[str, Any]:
    command = [python(), "-m", "accel_runtime", "launch", "--cpu", "--num-processes", "2", *flags]
    ran = subprocess.run(
        [*command, str(script), str(script.parent / "state")], capture_output=True, text=True, timeout=PATIENCE
    )
    assert ran.returncode == 0, ran.stderr
    told: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return told


def test_the_same_script_runs_under_deepspeed_by_flags_alone(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    config = tmp_path / "ds.json"
    zero = {"stage": "auto", **SHARDED["zero_optimization"]}
    config.write_text(json.dumps({"train_batch_size": "auto", "zero_optimization": zero}))
    plain = launched(script)
    ours = launched(script, "--strategy", "deepspeed", "--zero-stage", "3", "--deepspeed-config-file", str(config))
    assert (plain["kind"], plain["file"]) == ("MULTI_CPU", None)
    assert (ours["kind"], ours["file"]) == ("DEEPSPEED", json.loads(config.read_text()))
    assert ours["losses"] == pytest.approx(plain["losses"], rel=1e-4)
    assert ours["norms"] == pytest.approx(plain["norms"], rel=1e-4)
    assert ours["sums"] == pytest.approx(plain["sums"], rel=1e-4, abs=1e-5)
    assert (ours["inner"], ours["rate"]) == (plain["inner"], plain["rate"])
