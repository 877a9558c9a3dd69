"""Which modules FSDP shards one by one, and what its plugin takes: no processes needed."""

import functools

import pytest
from accel_runtime import FullyShardedDataParallelPlugin
from accel_runtime.errors import ConfigError, UsageError
from accel_runtime.options import Options
from accel_runtime.strategies.fsdp_blocks import blocks_of
from accel_runtime.strategies.fsdp_plugin import settled
from torch import nn
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

from tests.distributed.transformer import Block, Transformer


def names_of_blocks(model, options=None, **plugin):
    names = {id(module): name for name, module in model.named_modules()}
    sharding = settled(FullyShardedDataParallelPlugin(**plugin), options or Options())
    return [names[id(block)] for block in blocks_of(model, sharding)]


def test_layers_that_repeat_are_blocks():
    assert names_of_blocks(Transformer()) == ["blocks.1", "blocks.0"]
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), 3)
    assert names_of_blocks(nn.Sequential(nn.Linear(2, 8), encoder)) == ["1.layers.2", "1.layers.1", "1.layers.0"]


def test_single_layers_are_too_little_for_a_block():
    assert names_of_blocks(nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))) == []


def test_blocks_inside_other_layers_are_found_and_blocks_inside_blocks_stay_with_them():
    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = Transformer()
            self.experts = nn.ModuleList(nn.ModuleList([Transformer(1), Transformer(1)]) for _ in range(1))

    assert set(names_of_blocks(Wrapper())) == {"body.blocks.0", "body.blocks.1", "experts.0.0", "experts.0.1"}


def test_what_the_author_says_must_not_be_split_is_a_block():
    model = Transformer()
    model._no_split_modules = ["MultiheadAttention"]
    assert names_of_blocks(model) == ["blocks.1.attention", "blocks.0.attention"]


def test_blocks_are_named_by_flags_or_by_the_script_which_wins():
    options = Options(wrap_layers=("LayerNorm",))
    assert names_of_blocks(Transformer(1), options) == ["norm", "blocks.0.norm"]
    assert names_of_blocks(Transformer(1), options, transformer_cls_names_to_wrap="Block") == ["blocks.0"]
    with pytest.raises(
        UsageError, match="wrap_layers names Blok, and Transformer has no such layer; did you mean Block"
    ):
        names_of_blocks(Transformer(), transformer_cls_names_to_wrap=["Blok"])


def test_blocks_by_size_leave_the_parts_of_attention_with_it():
    by_size = names_of_blocks(Transformer(1), min_num_params=1000)
    assert by_size == ["head", "blocks.0.narrow", "blocks.0.widen", "blocks.0.attention", "words"]


def test_blocks_by_a_policy_of_either_kind():
    ours = names_of_blocks(Transformer(1), auto_wrap_policy=lambda module: isinstance(module, nn.Linear))
    assert ours == ["head", "blocks.0.narrow", "blocks.0.widen"]
    older = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    assert names_of_blocks(Transformer(1), auto_wrap_policy=older) == ["blocks.0"]
    assert names_of_blocks(Transformer(), auto_wrap_policy="no_wrap") == []


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"fsdp_version": 1}, "FSDP2 only"),
        ({"sharding_strategy": "NO_SHARD"}, "strategy ddp"),
        ({"state_dict_type": "LOCAL_STATE_DICT"}, "state_dict_type='LOCAL_STATE_DICT' is not one of"),
        ({"auto_wrap_policy": "by_name"}, "auto_wrap_policy='BY_NAME' is not one of"),
        ({"ignored_modules": [nn.Linear(1, 1)]}, "ignored_modules would train apart"),
    ],
)
def test_what_the_plugin_cannot_do_is_refused(settings, match):
    with pytest.raises(ConfigError, match=match):
        FullyShardedDataParallelPlugin(**settings)


def test_where_states_are_gathered_is_always_so():
    with pytest.warns(UserWarning, match=r"state_dict_config, optim_state_dict_config .* go to its CPU"):
        plugin = FullyShardedDataParallelPlugin(state_dict_config=object(), optim_state_dict_config=object())
    assert not settled(plugin, Options()).whole_checkpoints


def test_what_is_always_so_is_said():
    with pytest.warns(UserWarning, match=r"use_orig_params, sync_module_states .* has no effect"):
        plugin = FullyShardedDataParallelPlugin(use_orig_params=True, sync_module_states=True)
    assert settled(plugin, Options(reshard_after_forward=False)).reshard is False
    assert settled(FullyShardedDataParallelPlugin(sharding_strategy="SHARD_GRAD_OP"), Options()).reshard is False
