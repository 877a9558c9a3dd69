"""The state classes of Accelerate, as views on what runs."""

import os

import pytest
import torch
from accel_runtime import Accelerator, FullyShardedDataParallelPlugin, GradientAccumulationPlugin
from accel_runtime.errors import ConfigError
from accel_runtime.state import AcceleratorState, GradientState, PartialState, is_initialized
from torch.utils.data import DataLoader


@pytest.fixture(autouse=True)
def forgotten():
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def test_partial_states_of_one_process_share_what_they_know():
    PartialState(cpu=True).note = "seen"
    assert PartialState().note == "seen" and PartialState().initialized
    PartialState._reset_state()
    assert not hasattr(PartialState(cpu=True), "note")


def test_a_partial_state_that_was_reset_says_why_it_knows_nothing():
    state = PartialState(cpu=True)
    PartialState._reset_state()
    with pytest.raises(AttributeError, match="was called and an `Accelerator`"):
        _ = state.num_processes
    with pytest.raises(AttributeError, match="'PartialState' object has no attribute 'colour'"):
        _ = state.colour


def test_a_partial_state_finds_out_anew_where_the_environment_has_changed(monkeypatch):
    PartialState(cpu=True)
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}.items():
        monkeypatch.setitem(os.environ, name, value)
    assert PartialState(cpu=True)._world.launcher == "torchrun"


def test_the_accelerator_state_shows_the_accelerator_made_last():
    assert not is_initialized()
    first = Accelerator(cpu=True)
    second = Accelerator(cpu=True, mixed_precision="bf16")
    assert AcceleratorState().mixed_precision == "bf16" and AcceleratorState().device == second.device
    assert repr(AcceleratorState()) == repr(second.state)
    assert first.mixed_precision == "no"
    AcceleratorState._reset_state()
    assert not is_initialized() and second.num_processes == 1


def test_an_accelerator_has_made_the_partial_state_and_both_are_at_one_place(monkeypatch):
    """As losses of transformers ask, which then average a count over the processes."""
    assert PartialState._shared_state == {}
    accelerator = Accelerator(cpu=True)
    assert PartialState._shared_state != {}
    PartialState._reset_state()
    assert PartialState._shared_state == {}
    monkeypatch.setattr(accelerator, "_device", torch.device("meta"))
    assert PartialState().device.type == "meta"
    with pytest.warns(UserWarning, match="works on meta already"):
        PartialState(cpu=True)


def test_a_distributed_type_that_is_set_is_shown_and_named_as_no_more_than_that():
    accelerator = Accelerator(cpu=True)
    with pytest.warns(UserWarning, match="goes on as NO"):
        accelerator.state.distributed_type = "FSDP"
    assert accelerator.distributed_type == "FSDP"


def test_the_accelerator_state_changes_nothing_and_says_so():
    accelerator = Accelerator(cpu=True)
    with pytest.raises(ConfigError, match="pass mixed_precision or cpu to the Accelerator"):
        AcceleratorState(mixed_precision="bf16")
    with pytest.raises(ConfigError, match="fsdp_plugin"):
        AcceleratorState(fsdp_plugin=object())
    assert accelerator.mixed_precision == "no"


def test_the_gradient_state_is_the_accumulation_of_the_accelerator_made_last():
    assert GradientState().num_steps == 1 and GradientState().active_dataloader is None
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    state = GradientState()
    assert state.num_steps == 4 and state.plugin_kwargs == {"num_steps": 4}
    accelerator.gradient_accumulation_steps = 2
    assert state.num_steps == 2
    state._set_sync_gradients(False)
    assert accelerator.sync_gradients is False
    with pytest.raises(ConfigError, match="to the Accelerator"):
        GradientState(GradientAccumulationPlugin(num_steps=8))


def test_the_gradient_state_knows_the_loader_being_iterated():
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(DataLoader(list(range(10)), batch_size=4))
    state, seen = accelerator.gradient_state, []
    for _ in loader:
        assert state.in_dataloader and state.active_dataloader is loader
        seen.append((state.end_of_dataloader, loader.end_of_dataloader, state.remainder))
    assert seen == [(False, False, 2), (False, False, 2), (True, True, 2)]
    assert not state.in_dataloader and state.active_dataloader is None and state.remainder == -1
    assert loader.iteration == 1


def test_the_state_shows_what_the_script_said_about_fsdp():
    plugin = FullyShardedDataParallelPlugin(min_num_params=3)
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
    assert accelerator.state.fsdp_plugin is plugin
    accelerator.end_training()  # it joined a group, of one
    assert Accelerator(cpu=True).state.fsdp_plugin is None
