"""The configuration of DeepSpeed's engine: `auto` is filled in, and two values for one thing are an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from accel_runtime import Accelerator, DeepSpeedPlugin
from accel_runtime.errors import ConfigError
from accel_runtime.strategies.deepspeed_config import Config, Run, Written, engine_config, written_in
from accel_runtime.strategies.deepspeed_sections import optimizer_in
from accel_runtime.utils import DummyScheduler

RUN = Run(processes=2, accumulation=4, precision="no", micro_batch=8)


def settled(config: dict[str, Any], run: Run = RUN) -> Config:
    return engine_config(Written("ds.json", config), run)


def test_auto_values_are_those_of_the_run() -> None:
    config = settled(
        {
            "train_batch_size": "auto",
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": "auto",
            "bf16": {"enabled": "auto"},
            "fp16": {"enabled": "auto", "loss_scale": 0},
            "zero_optimization": {"stage": "auto", "reduce_bucket_size": "auto", "overlap_comm": False},
        },
        Run(processes=2, accumulation=4, precision="bf16", micro_batch=8, stage=3, clipping=0.5),
    )
    assert config == {
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 8,
        "gradient_accumulation_steps": 4,
        "gradient_clipping": 0.5,
        "bf16": {"enabled": True},
        "fp16": {"enabled": False, "loss_scale": 0},
        "zero_optimization": {"stage": 3, "overlap_comm": False},
        "steps_per_print": None,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }


def test_without_a_file_the_engine_does_what_the_run_says_and_nothing_else() -> None:
    config = settled({})
    assert config["train_batch_size"] == 64
    assert config["gradient_clipping"] == 0, "left out, the engine would clip to 1"
    assert config["zero_optimization"] == {"stage": 2}
    assert not config.keys() & {"bf16", "fp16"}


def test_what_the_file_says_is_kept() -> None:
    written = {"zero_optimization": {"stage": 1, "contiguous_gradients": False}, "wall_clock_breakdown": True}
    config = settled(written)
    assert config["zero_optimization"] == written["zero_optimization"]
    assert config["wall_clock_breakdown"] is True
    assert written == {"zero_optimization": {"stage": 1, "contiguous_gradients": False}, "wall_clock_breakdown": True}


def test_a_total_batch_tells_the_share_of_a_process_where_there_is_no_loader() -> None:
    run = Run(processes=2, accumulation=4, precision="no")
    assert settled({"train_batch_size": 64}, run)["train_micro_batch_size_per_gpu"] == 8
    assert settled({}, run)["train_micro_batch_size_per_gpu"] == 1


def test_offload_is_added_to_what_the_file_says() -> None:
    run = Run(2, 1, "no", stage=3, offload={"offload_param": {"device": "cpu"}})
    config = settled({"zero_optimization": {"offload_param": {"pin_memory": True}}}, run)
    assert config["zero_optimization"]["offload_param"] == {"pin_memory": True, "device": "cpu"}


def test_offloading_everything_is_what_the_stage_shards() -> None:
    optimizer, both = ({"stage": 2, "offload_optimizer": {"device": "cpu"}}, ("offload_optimizer", "offload_param"))
    assert settled({}, Run(2, 1, "no", stage=2, cpu_offload=True))["zero_optimization"] == optimizer
    assert settled({}, Run(2, 1, "no", stage=3, cpu_offload=True))["zero_optimization"] == {
        "stage": 3,
        **{section: {"device": "cpu"} for section in both},
    }


def test_fp16_is_the_engine_s_own_for_its_losses_are_scaled() -> None:
    assert settled({}, Run(2, 1, "fp16"))["fp16"] == {"enabled": True}


@pytest.mark.parametrize(
    ("config", "run", "told"),
    [
        ({"gradient_accumulation_steps": 2}, RUN, "gradient_accumulation_steps is 2 and the Accelerator accumulates 4"),
        ({"train_micro_batch_size_per_gpu": 4}, RUN, "is 4 and the first prepared loader gives each process 8"),
        ({"train_batch_size": 32}, RUN, "is 32 and 8 samples on 2 processes with 4 accumulated make 64"),
        ({"zero_optimization": {"stage": 2}}, Run(2, 1, "no", stage=3), "stage is 2 and this run asks for 3"),
        (
            {"gradient_clipping": 1.0},
            Run(2, 1, "no", clipping=0.5),
            "gradient_clipping is 1.0 and this run asks for 0.5",
        ),
        ({"bf16": {"enabled": True}}, RUN, "bf16.enabled is true and mixed_precision is 'no'"),
        ({"fp16": {"enabled": False}}, Run(2, 1, "fp16"), "fp16.enabled is false and mixed_precision is 'fp16'"),
        (
            {"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}},
            RUN,
            "offload_param is 'cpu' and the stage is 2; only stage 3 shards parameters",
        ),
        ({"torch_autocast": {"enabled": True}}, RUN, "torch_autocast is part of the engine's own forward"),
        ({"zero_optimization": {"stage": 0}}, RUN, "zero_stage=0 shards nothing"),
        ({"optimizer": {"type": "AdamW"}}, RUN, "the section 'optimizer' would build what the script builds itself"),
        ({"scheduler": {"type": "WarmupLR"}}, RUN, "the section 'scheduler' would build what the script builds itself"),
        ({"aio": {"block_size": "auto"}}, RUN, "aio.block_size is auto, and nothing here knows its value"),
    ],
)
def test_a_contradiction_shows_both_values(config: dict[str, Any], run: Run, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settled(config, run)
    assert told in str(caught.value)


def test_a_file_is_read_and_a_bad_one_named(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"gradient_clipping": 1.0}))
    assert written_in(str(path)) == Written(str(path), {"gradient_clipping": 1.0})
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"ds\.json: is not JSON"):
        written_in(path)
    path.write_text("[]")
    with pytest.raises(ConfigError, match=r"ds\.json: holds a list"):
        written_in(path)
    with pytest.raises(ConfigError, match=r"none\.json: cannot be read"):
        written_in(tmp_path / "none.json")


def test_a_plugin_speaks_in_the_keys_of_a_config_file() -> None:
    plugin = DeepSpeedPlugin(zero_stage=3, gradient_clipping="auto", gradient_accumulation_steps=2)
    assert plugin.options() == {
        "strategy": "deepspeed",
        "zero_stage": 3,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": None,
    }


def test_a_script_can_look_into_the_file_of_a_plugin(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"gradient_clipping": 1.0}))
    plugin = DeepSpeedPlugin(hf_ds_config=path)
    plugin.deepspeed_config["gradient_clipping"] = 2.0
    assert plugin.deepspeed_config == {"gradient_clipping": 1.0}


SECTION = {"optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto", "torch_adam": True}}}
WEIGHTS = (torch.nn.Parameter(torch.ones(2)),)
AUTO = {"lr": 0.1, "weight_decay": 0.2}


def built(kind: str, **params: Any) -> torch.optim.Optimizer:
    written = Written("ds.json", {"optimizer": {"type": kind, "params": {"lr": "auto", **params}}})
    return optimizer_in(written, WEIGHTS, AUTO)


def test_a_section_builds_an_optimizer_with_what_the_script_says_where_it_says_auto() -> None:
    made = optimizer_in(Written("ds.json", SECTION), [{"params": WEIGHTS, "weight_decay": 0.0}], AUTO)
    assert type(made) is torch.optim.AdamW
    assert (made.defaults["lr"], made.defaults["weight_decay"]) == (0.1, 0.2)
    assert made.param_groups[0]["weight_decay"] == 0, "a group's own word is kept"
    assert built("AdamW", lr=0.5).defaults["lr"] == 0.5, "so is the file's"


def test_names_of_optimizers_mean_what_they_do_in_deepspeed() -> None:
    kinds = {name: type(built(name)).__name__ for name in ("adam", "AdamW", "SGD", "Adagrad")}
    assert kinds == {"adam": "AdamW", "AdamW": "AdamW", "SGD": "SGD", "Adagrad": "Adagrad"}
    assert type(built("Adam", adam_w_mode=False)) is torch.optim.Adam


def test_a_section_that_the_script_had_built_is_not_the_engine_s() -> None:
    assert "optimizer" not in settled(SECTION, Run(2, 1, "no", built=frozenset({"optimizer"})))


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, "ds.json has no section 'optimizer' to build from"),
        ({"optimizer": {"type": "OneBitAdam"}}, "optimizer.type is 'OneBitAdam', which DeepSpeed builds for itself"),
        ({"optimizer": {"type": "Adam", "params": {"betas": "auto"}}}, "optimizer.params.betas is auto, and nothing"),
    ],
)
def test_a_section_that_cannot_be_built_says_why(config: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        optimizer_in(Written("ds.json", config), WEIGHTS, AUTO)
    assert told in str(caught.value)


def test_a_stand_in_needs_deepspeed() -> None:
    accelerator = Accelerator(cpu=True)
    with pytest.raises(ConfigError, match=r"DummyScheduler stands for a section .* does not run on DeepSpeed"):
        DummyScheduler(torch.optim.SGD(WEIGHTS), total_num_steps=4)
    del accelerator


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"offload_param_device": "gpu"}, "offload_param_device='gpu' is not one of none, cpu, nvme"),
        ({"offload_optimizer_device": "nvme"}, "needs the folder of that disk in offload_optimizer_nvme_path"),
        ({"zero3_init_flag": True}, "zero3_init_flag=True would build models in shards"),
    ],
)
def test_a_plugin_refuses_what_it_cannot_mean(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DeepSpeedPlugin(**settings)
    assert told in str(caught.value)
