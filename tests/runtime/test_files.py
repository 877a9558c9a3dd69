"""Files that the Accelerator writes: whole or not at all, portable, in shards."""

import json
import stat

import pytest
import torch
from accel_runtime import Accelerator
from accel_runtime.errors import ConfigError
from safetensors.torch import load_file
from torch import nn


def test_a_checkpoint_that_is_asked_to_be_pickled_says_that_it_is_not(tmp_path):
    with pytest.warns(UserWarning, match="always safetensors and JSON"):
        Accelerator(cpu=True).save_state(tmp_path / "state", safe_serialization=False)


def test_a_failed_save_leaves_the_old_file_and_no_debris(tmp_path):
    accelerator = Accelerator(cpu=True)
    path = tmp_path / "model.pt"
    accelerator.save({"a": torch.ones(1)}, path)
    with pytest.raises(Exception, match=r"pickle|local object"):
        accelerator.save({"a": lambda: None}, path)
    assert torch.load(path) == {"a": torch.ones(1)}
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) & 0o400


def test_weights_are_written_in_shards_with_an_index_and_without_tied_copies(tmp_path):
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(10, 10, bias=False), nn.Linear(10, 10, bias=False), nn.Linear(10, 10))
    model[1].weight = model[0].weight
    accelerator.save_model(model, tmp_path, max_shard_size=500)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert sorted(index["weight_map"]) == ["0.weight", "2.bias", "2.weight"]
    restored = {
        key: value for name in set(index["weight_map"].values()) for key, value in load_file(tmp_path / name).items()
    }
    assert torch.equal(restored["0.weight"], model[0].weight)
    accelerator.save_model(model, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    accelerator.save_model(model, tmp_path / "pickled", safe_serialization=False)
    assert sorted(torch.load(tmp_path / "pickled" / "pytorch_model.bin")) == [
        "0.weight",
        "1.weight",
        "2.bias",
        "2.weight",
    ]


def test_a_size_that_is_none_is_refused_and_nothing_is_made(tmp_path):
    with pytest.raises(ConfigError, match="write it as '5GB'"):
        Accelerator(cpu=True).save_model(nn.Linear(1, 1), tmp_path / "unused", max_shard_size="big")
    assert not (tmp_path / "unused").exists()


def test_state_dict_keys_are_the_users_own_through_compile():
    accelerator = Accelerator(cpu=True, dynamo_backend="eager")
    model = accelerator.prepare(nn.Linear(2, 2))
    assert list(accelerator.get_state_dict(model)) == ["weight", "bias"]
    assert type(accelerator.unwrap_model(model)) is nn.Linear
    assert model(torch.ones(1, 2)).shape == (1, 2)


@pytest.mark.parametrize("settings", [{}, {"dynamo_backend": "eager"}])
def test_a_file_of_a_model_that_the_script_compiled_loads_into_it(tmp_path, settings):
    accelerator = Accelerator(cpu=True, **settings)
    given = torch.compile(nn.Linear(2, 2), backend="eager")
    model = accelerator.prepare(given)
    accelerator.save(accelerator.get_state_dict(model), tmp_path / "model.pt")
    assert list(torch.load(tmp_path / "model.pt")) == ["_orig_mod.weight", "_orig_mod.bias"]
    given.load_state_dict(torch.load(tmp_path / "model.pt"))


def test_a_model_compiled_after_prepare_keeps_the_keys_of_its_state():
    accelerator = Accelerator(cpu=True)
    model = torch.compile(accelerator.prepare(nn.Linear(2, 2)), backend="eager")
    assert list(accelerator.get_state_dict(model)) == list(model.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]


def test_weights_and_checkpoints_have_plain_keys_though_the_script_compiled(tmp_path):
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(torch.compile(nn.Linear(2, 2), backend="eager"))
    accelerator.save_model(model, tmp_path / "weights")
    assert sorted(load_file(tmp_path / "weights" / "model.safetensors")) == ["bias", "weight"]
    kept = accelerator.get_state_dict(model)["_orig_mod.weight"].clone()
    accelerator.save_state(tmp_path / "state")
    torch.nn.init.zeros_(model.weight)
    accelerator.load_state(tmp_path / "state")
    assert torch.equal(model.weight, kept)


def test_a_profile_is_written_for_each_process(tmp_path):
    from accel_runtime import ProfileKwargs

    accelerator = Accelerator(
        cpu=True, kwargs_handlers=[ProfileKwargs(activities=["cpu"], output_trace_dir=str(tmp_path))]
    )
    with accelerator.profile() as profiler:
        torch.ones(2) + 1
    assert any("add" in event.key for event in profiler.key_averages())
    assert (tmp_path / "profile_0.json").exists()
