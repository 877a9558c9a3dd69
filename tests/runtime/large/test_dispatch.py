"""A model that is spread over devices, memory and disk answers as the whole model does, to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from accel_runtime import (
    Accelerator,
    cpu_offload,
    cpu_offload_with_hook,
    disk_offload,
    dispatch_model,
    infer_auto_device_map,
    init_empty_weights,
    init_on_device,
    load_checkpoint_and_dispatch,
    load_checkpoint_in_model,
)
from accel_runtime.errors import CheckpointError, ConfigError, UsageError
from accel_runtime.hooks import remove_hook_from_submodules
from accel_runtime.large.device_map import place_of
from accel_runtime.large.loading import get_state_dict_offloaded_model
from accel_runtime.large.sizes import compute_module_sizes
from accel_runtime.weights import save_weights
from torch import Tensor, nn

from tests.gpu_stand_in import gpus
from tests.runtime.large.models import WORDS, Language, trained

BLOCKS = {f"blocks.{number}": 0 for number in range(4)}
MAPS: dict[str, dict[str, Any]] = {
    "two GPUs": {"embedding": 0, "head": 0, "start": 0, **BLOCKS, "blocks.2": 1, "blocks.3": 1},
    "GPU, CPU and disk": {"": 0, **BLOCKS, "blocks.1": "cpu", "blocks.2": "disk", "head": "disk", "embedding": "cpu"},
    "CPU and disk": {"": "cpu", "blocks.1": "disk", "head": "disk", "embedding": "disk"},
    "disk": {"": "disk"},
    "one GPU": {"": 1},
    "a block inside of another": {"": 0, "blocks.1": 1, "blocks": 1, "blocks.0": 0},
    "the parts of a block": {"": 0, "blocks.0.up": "cpu", "blocks.0.down": "disk"},
    "parts without a block around": {
        "embedding": 0,
        "head": 0,
        "start": "disk",
        **{f"blocks.{number}": 0 for number in range(3)},
        "blocks.3.up": 0,
        "blocks.3.norm": "cpu",
        "blocks.3.down": "disk",
        "blocks.3.scale": "disk",
    },
}


def answers(model: nn.Module) -> Mapping[str, Tensor]:
    with torch.no_grad():
        return {name: value.cpu() for name, value in model(WORDS).items()}


def assert_same(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name in expected:
        assert torch.equal(found[name], expected[name]), name


@pytest.mark.parametrize("device_map", MAPS.values(), ids=MAPS)
@pytest.mark.parametrize("offload_buffers", [False, True])
def test_dispatched_model_answers_as_the_whole(
    device_map: dict[str, Any], offload_buffers: bool, tmp_path: Path
) -> None:
    expected = answers(trained())
    with gpus(2):
        model = dispatch_model(
            trained(), device_map, offload_dir=tmp_path, offload_buffers=offload_buffers, force_hooks=True
        )
        for _ in range(2):
            assert_same(answers(model), expected)
        assert model.hf_device_map == device_map


@pytest.mark.parametrize("device_map", MAPS.values(), ids=MAPS)
@pytest.mark.parametrize("limit", ["10GB", "2KB"], ids=["one file", "shards"])
@pytest.mark.parametrize("safe", [True, False], ids=["safetensors", "bin"])
def test_empty_model_is_loaded_where_the_map_says(
    device_map: dict[str, Any], limit: str, safe: bool, tmp_path: Path
) -> None:
    expected = answers(trained())
    files = save_weights(trained().state_dict(), tmp_path / "saved", limit, safe)
    assert (len(files) > 1) == (limit == "2KB")
    with gpus(2):
        with init_empty_weights():
            model = Language().eval()
        load_checkpoint_and_dispatch(
            model,
            tmp_path / "saved",
            device_map,
            offload_folder=tmp_path / "away",
            strict=True,
            force_hooks=True,
        )
        for _ in range(2):
            assert_same(answers(model), expected)


@pytest.mark.parametrize("policy", ["auto", "balanced", "balanced_low_0", "sequential"])
def test_budgets_smaller_than_the_model_send_layers_to_cpu_and_disk(policy: str, tmp_path: Path) -> None:
    expected = answers(trained())
    save_weights(trained().state_dict(), tmp_path / "saved", "10GB", safe=True)
    sizes = compute_module_sizes(trained())
    budgets = {0: 2 * sizes["blocks.0"] + sizes["embedding"] + 300, 1: sizes["blocks.0"], "cpu": 2 * sizes["blocks.0"]}
    assert budgets[0] + budgets[1] < sizes[""]
    with gpus(2):
        with init_empty_weights():
            model = Language().eval()
        load_checkpoint_and_dispatch(
            model, tmp_path / "saved", policy, budgets, ["Block", "Head"], offload_folder=tmp_path / "away"
        )
        assert {"cpu", "disk"} & set(model.hf_device_map.values())
        assert not [name for name in model.hf_device_map if "up" in name or "down" in name]
        assert_same(answers(model), expected)


def test_weights_that_are_away_take_no_memory_while_they_do_not_run(tmp_path: Path) -> None:
    with gpus(1):
        model = dispatch_model(trained(), {"": 0, "blocks.1": "cpu", "blocks.2": "disk"}, offload_dir=tmp_path)
        for _ in range(2):
            assert all(p.is_meta for p in [*model.blocks[1].parameters(), *model.blocks[2].parameters()])
            assert not model.blocks[1].norm.running_mean.is_meta, "buffers stay where the layer runs"
            answers(model)


def test_offloaded_buffers_are_away_and_keep_their_values(tmp_path: Path) -> None:
    model = dispatch_model(trained(), {"": "cpu", "blocks.2": "disk"}, offload_dir=tmp_path, offload_buffers=True)
    assert model.blocks[2].norm.running_mean.is_meta
    name = "blocks.2.norm.running_mean"
    assert torch.equal(get_state_dict_offloaded_model(model)[name], trained().state_dict()[name])


@pytest.mark.parametrize("safe", [True, False])
def test_save_model_reads_offloaded_weights_back(tmp_path: Path, safe: bool) -> None:
    """Also into the folder that they are offloaded to."""
    model = dispatch_model(trained(), MAPS["CPU and disk"], offload_dir=tmp_path)
    Accelerator(cpu=True).save_model(model, tmp_path, safe_serialization=safe)
    loaded = Language()
    load_checkpoint_in_model(loaded, tmp_path)
    expected = trained().state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in loaded.state_dict().items())


def test_save_model_names_weights_that_were_never_loaded(tmp_path: Path) -> None:
    with init_empty_weights():
        empty = Language()
    with pytest.raises(CheckpointError, match=r"no value that could be saved: .*head\.weight"):
        Accelerator(cpu=True).save_model(empty, tmp_path)


def test_output_comes_back_to_where_the_input_was(tmp_path: Path) -> None:
    with gpus(2):
        model = dispatch_model(trained(), MAPS["two GPUs"])
        assert {value.device.type for value in model(WORDS).values()} == {"cpu"}
        assert {str(value.device) for value in model(WORDS.to("cuda:1")).values()} == {"cuda:1"}


def test_tied_weights_stay_one_parameter_on_their_device(tmp_path: Path) -> None:
    with gpus(2):
        model = dispatch_model(trained(), MAPS["two GPUs"])
        assert model.head.weight is model.embedding.weight
        with init_empty_weights():
            empty = Language()
        assert empty.head.weight is empty.embedding.weight
        save_weights(trained().state_dict(), tmp_path, "10GB", safe=True)
        load_checkpoint_in_model(empty, tmp_path, MAPS["two GPUs"])
        assert empty.head.weight is empty.embedding.weight
        assert empty.head.weight.device == torch.device("cuda:0")


def test_tied_weights_on_two_devices_are_copies_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_weights(trained().state_dict(), tmp_path, "10GB", safe=True)
    expected = answers(trained())
    with gpus(2):
        with init_empty_weights():
            model = Language().eval()
        load_checkpoint_and_dispatch(model, tmp_path, {"": 0, "head": 1})
        assert "tied parameters are on different devices" in caplog.text
        assert_same(answers(model), expected)


def test_dtype_is_that_of_the_model_unless_another_is_asked_for(tmp_path: Path) -> None:
    save_weights(trained().half().state_dict(), tmp_path / "saved", "10GB", safe=True)
    for dtype, expected in ((None, torch.float32), ("bfloat16", torch.bfloat16), (torch.float16, torch.float16)):
        with init_empty_weights():
            model = Language()
        folder = tmp_path / str(dtype)
        load_checkpoint_and_dispatch(
            model, tmp_path / "saved", {"": "cpu", "blocks.0": "disk"}, offload_folder=folder, dtype=dtype
        )
        assert model.blocks[1].up.weight.dtype == expected
        assert model.blocks[1].norm.num_batches_tracked.dtype == torch.int64
        assert get_state_dict_offloaded_model(model)["blocks.0.up.weight"].dtype == expected


def test_model_without_a_map_is_loaded_whole(tmp_path: Path) -> None:
    save_weights(trained().state_dict(), tmp_path, "2KB", safe=True)
    for empty in (True, False):
        with init_empty_weights() if empty else init_on_device(torch.device("cpu")):
            model = Language().eval()
        load_checkpoint_in_model(model, tmp_path, strict=True)
        assert_same(answers(model), answers(trained()))
        assert model.head.weight is model.embedding.weight


def test_what_does_not_fit_the_checkpoint_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = trained().state_dict()
    del state["head.bias"]
    save_weights({**state, "stray": torch.ones(1)}, tmp_path, "10GB", safe=True)
    for device_map in (None, {"": "cpu"}):
        with pytest.raises(CheckpointError, match=r"lacks head\.bias; the model has no stray"):
            load_checkpoint_in_model(Language(), tmp_path, device_map, strict=True)
        load_checkpoint_in_model(Language(), tmp_path, device_map)
    assert "the checkpoint lacks head.bias" in caplog.text
    with pytest.raises(UsageError, match="shape"):
        load_checkpoint_in_model(Language(width=8), tmp_path, {"": "cpu"})


def test_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    torch.save({"bias": print}, tmp_path / "pytorch_model.bin")
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        load_checkpoint_in_model(Language(), tmp_path)


@pytest.mark.parametrize("where", ["cpu", "disk"])
def test_all_weights_away(where: str, tmp_path: Path) -> None:
    expected = answers(trained())
    with gpus(1):
        whole = trained()
        model = cpu_offload(whole, 0) if where == "cpu" else disk_offload(whole, tmp_path, 0)
        assert all(parameter.is_meta for parameter in model.parameters())
        assert_same(answers(model), expected)
        remove_hook_from_submodules(model)
        assert not any(parameter.is_meta for parameter in model.parameters())
        assert_same(answers(model), expected)
        assert "forward" not in vars(model)


def test_chain_of_models_keeps_one_on_the_device() -> None:
    with gpus(1):
        first, first_hook = cpu_offload_with_hook(nn.Linear(2, 2), 0)
        second, second_hook = cpu_offload_with_hook(nn.Linear(2, 2), 0, first_hook)
        output = first(torch.ones(1, 2))
        assert (first.weight.device.type, second.weight.device.type) == ("cuda", "cpu")
        second(output)
        assert (first.weight.device.type, second.weight.device.type) == ("cpu", "cuda")
        second_hook.offload()
        assert second.weight.device.type == "cpu"


def test_preloaded_class_may_use_the_weights_of_its_parts_directly(tmp_path: Path) -> None:
    class Direct(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(x, self.part.weight, self.part.bias)

    model = nn.Sequential(Direct(), nn.Linear(3, 3))
    expected = model(torch.ones(1, 3))
    dispatch_model(model, {"0": "disk", "1": "cpu"}, offload_dir=tmp_path, preload_module_classes=["Direct"])
    assert torch.equal(model(torch.ones(1, 3)), expected)


def test_refusals_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no device for .*bias"):
        dispatch_model(trained(), BLOCKS)
    with pytest.raises(ConfigError, match="offload_dir"):
        dispatch_model(trained(), {"": "cpu", "head": "disk"})
    with pytest.raises(ConfigError, match="offload_folder"):
        load_checkpoint_in_model(trained(), save_weights({}, tmp_path, "1GB", True)[0], {"": "disk"})
    with pytest.raises(ConfigError, match="policy"):
        load_checkpoint_and_dispatch(trained(), tmp_path, "automatic")
    model = dispatch_model(trained(), {"": "cpu", "head": "disk"}, offload_dir=tmp_path)
    with pytest.raises(UsageError, match="cannot be moved"):
        model.to("cpu")
    with pytest.warns(UserWarning, match="nowhere"):
        dispatch_model(trained(), {"": "cpu", "nowhere": "cpu"})


def test_inferred_map_covers_the_model_and_keeps_blocks_whole() -> None:
    model = trained()
    sizes = compute_module_sizes(model)
    for tenths in range(1, 14):
        budget = int(sizes[""] * tenths / 10)
        with gpus(2):
            found = infer_auto_device_map(model, {0: budget, 1: budget // 2, "cpu": budget}, ["Block"])
        state = model.state_dict()
        where = {name: place_of(name, found) for name in state}
        assert None not in where.values()
        assert where["head.weight"] == where["embedding.weight"]
        for number in range(4):
            assert len({place for name, place in where.items() if name.startswith(f"blocks.{number}.")}) == 1
        del state["head.weight"]  # it is the embedding's
        for place, limit in ((0, budget), (1, budget // 2), ("cpu", budget)):
            assert sum(tensor.nbytes for name, tensor in state.items() if where[name] == place) <= limit
