"""FSDP on real processes: it trains as one process does, and each process holds its part of everything."""

import copy
import io
import os
import re
import weakref
from contextlib import nullcontext

import pytest
import torch
from accel_runtime import Accelerator, FullyShardedDataParallelPlugin, GradScalerKwargs, LocalSGD
from accel_runtime.errors import AccelError, UsageError
from safetensors.torch import load_file
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.distributed.tensor import DTensor

from tests.distributed.overflow import steps_with_an_overflow
from tests.distributed.transformer import (
    ACCUMULATION,
    STEPS,
    Transformer,
    alone,
    relative_distance,
    small_transformer,
    train,
)
from tests.distributed.worlds import gone, in_world

# What accelerators gather by default; on the CPU it is asked for.
NARROW = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)


def sharded(**settings):
    plugin = FullyShardedDataParallelPlugin(**settings.pop("plugin", {}))
    return Accelerator(fsdp_plugin=plugin, **settings)


def trained(steps=STEPS, **settings):
    return train(sharded(gradient_accumulation_steps=ACCUMULATION, **settings), steps=steps)


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def test_two_processes_train_as_one_and_hold_half_each():
    def work():
        return [trained(mixed_precision=precision) for precision in ("no", "bf16", "fp16")]

    full = alone()
    assert len(full.losses) == STEPS * ACCUMULATION and full.losses[-1] < 0.1 < full.losses[0]
    for runs in in_world(2, work):
        for run, tolerance in zip(runs, (1e-4, 0.02, 0.02)):
            assert relative_distance(run.losses, full.losses) < tolerance
            assert run.parameter_bytes == full.parameter_bytes / 2
            assert run.gradient_bytes == full.gradient_bytes / 2
            assert run.optimizer_bytes == pytest.approx(full.optimizer_bytes / 2, rel=0.001)


def test_one_process_trains_to_the_bit_and_three_nearly():
    def work():
        os.environ["ACCEL_STRATEGY"] = "ddp"  # the script has the last word
        return trained(steps=8).losses

    full = alone(steps=8)
    assert in_world(1, work) == [full.losses]
    for run in in_world(3, lambda: trained(steps=8)):
        assert relative_distance(run.losses, full.losses) < 1e-4
        assert run.parameter_bytes < full.parameter_bytes * 0.4


def test_every_way_to_wrap_and_compile_trains_the_same():
    ways = [
        {"plugin": {"reshard_after_forward": True, "activation_checkpointing": True}},
        {"plugin": {"transformer_cls_names_to_wrap": ["Block"], "reshard_after_forward": False}},
        {"plugin": {"min_num_params": 2000, "cpu_offload": True}},
        {"plugin": {"auto_wrap_policy": lambda module: isinstance(module, nn.Linear)}},
        {"dynamo_backend": "aot_eager"},
        {"plugin": {"mixed_precision_policy": NARROW}, "mixed_precision": "bf16"},
    ]

    def work():
        return [trained(steps=4, **copy.deepcopy(way)).losses for way in [*ways, {"mixed_precision": "fp8-emulated"}]]

    expected = alone(steps=4).losses
    for *losses, in_eight_bits in in_world(2, work):
        assert in_eight_bits[-1] < 0.9 * in_eight_bits[0]
        for way, found in zip(ways, losses):
            assert relative_distance(found, expected) < (0.02 if "mixed_precision" in way else 1e-4), way


def test_an_overflow_skips_the_step_on_every_process():
    def work():
        accelerator = sharded(mixed_precision="fp16", kwargs_handlers=[GradScalerKwargs(init_scale=8.0)])
        return steps_with_an_overflow(accelerator, nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)))

    for seen in in_world(2, work):
        assert seen == [(True, 0, True), (False, 1, False)]


def test_a_model_keeps_its_face(tmp_path):
    def work():
        accelerator = sharded()
        model = small_transformer()
        model.head.weight = model.words.weight
        original, original_model = copy.deepcopy(model.state_dict()), copy.deepcopy(model)
        prepared = accelerator.prepare(model)
        assert prepared is model is accelerator.unwrap_model(prepared) is accelerator.prepare(prepared)
        assert isinstance(model.blocks[0], FSDPModule) and isinstance(model.words.weight, DTensor)
        assert model.__class__.__name__ == type(original_model).__name__ and repr(model) == repr(original_model)
        state = accelerator.get_state_dict(model)
        assert list(state) == list(original) and all(torch.equal(state[key], original[key]) for key in original)
        assert state["head.weight"] is state["words.weight"]
        assert all(torch.equal(whole(value), original[key]) for key, value in model.state_dict().items())
        changed = {key: value + 1 for key, value in original.items()}
        model.load_state_dict(changed)
        assert torch.equal(accelerator.get_state_dict(model)["norm.weight"], changed["norm.weight"])
        accelerator.save_model(model, tmp_path)
        return str(accelerator.distributed_type), accelerator.is_fsdp2

    assert in_world(2, work) == [("FSDP", True)] * 2
    saved = load_file(tmp_path / "model.safetensors")
    assert torch.equal(saved["norm.weight"], small_transformer().norm.weight + 1) and "head.weight" not in saved


def test_a_weight_with_two_names_is_gathered_once_though_a_process_holds_nothing_of_it():
    def work():
        accelerator = sharded()
        model = nn.Sequential(nn.Linear(3, 1, bias=False), nn.Linear(3, 1, bias=False), nn.Linear(1, 2))
        model[1].weight = model[0].weight
        state = accelerator.get_state_dict(accelerator.prepare(model))
        return list(state), state["0.weight"] is state["1.weight"], state["2.bias"].shape

    names = ["0.weight", "1.weight", "2.weight", "2.bias"]
    assert in_world(2, work) == [(names, True, (2,))] * 2


def test_a_weight_of_two_blocks_is_sharded_with_what_holds_both():
    def stepped(model, backward, optimizer):
        backward(model(torch.arange(6).reshape(2, 3)).square().mean())
        optimizer.step()

    def work():
        torch.manual_seed(0)
        model = small_transformer()
        model.blocks[1].load_state_dict(model.blocks[0].state_dict())
        name = next(name for name, _ in model.blocks[0].named_parameters() if name.endswith("weight"))
        owner, _, last = name.rpartition(".")
        setattr(model.blocks[1].get_submodule(owner), last, model.blocks[0].get_parameter(name))
        plain = copy.deepcopy(model)
        stepped(plain, torch.Tensor.backward, torch.optim.SGD(plain.parameters(), lr=0.1))
        accelerator = sharded()
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        stepped(model, accelerator.backward, optimizer)
        state = accelerator.get_state_dict(model)
        return all(torch.allclose(state[key], value, atol=1e-6) for key, value in plain.state_dict().items())

    assert in_world(2, work) == [True, True]


def test_frozen_and_evaluation_models_stay_whole_and_an_average_is_kept():
    def work():
        accelerator = sharded()
        model = nn.Linear(3, 2)
        average = copy.deepcopy(model).requires_grad_(False)
        model, average = accelerator.prepare(model, average)
        judge = accelerator.prepare_model(nn.Linear(2, 2), evaluation_mode=True)
        assert not any(isinstance(weight, DTensor) for one in (average, judge) for weight in one.parameters())
        with torch.no_grad():
            model.bias += 1
        state = accelerator.get_state_dict(model)
        for name, value in average.state_dict().items():
            value.lerp_(state[name], 0.5)
        return torch.equal(average.weight, state["weight"]), (state["bias"] - average.bias).tolist()

    assert in_world(2, work) == [(True, [0.5, 0.5])] * 2


def test_weights_are_those_of_process_0():
    def work():
        accelerator = sharded()
        torch.manual_seed(accelerator.process_index)
        model = nn.BatchNorm1d(4)
        model.running_mean.fill_(accelerator.process_index)
        model.weight.data = torch.randn(4)
        drawn = accelerator.gather_object([model.weight.tolist()])
        state = accelerator.get_state_dict(accelerator.prepare(model))
        return state["weight"].tolist() == drawn[0], state["running_mean"].tolist()

    assert in_world(2, work) == [(True, [0.0] * 4)] * 2


def test_optimizers_and_lists_follow_the_weights():
    def step(model, optimizer, backward):
        backward(model(torch.ones(1, 3)).sum())
        optimizer.step()
        optimizer.zero_grad()

    def work():
        seen = []
        for order in ("together", "model first", "optimizer first"):
            accelerator = sharded(mixed_precision="fp16", autocast_forward=False)
            torch.manual_seed(0)
            model, other = nn.Linear(3, 5), None
            other = copy.deepcopy(model)
            optimizer, reference = (torch.optim.Adam(one.parameters(), lr=0.1) for one in (model, other))
            for pair in ((model, optimizer), (other, reference)):
                step(*pair, torch.Tensor.backward)  # the optimizer comes with a state
            weights = list(model.parameters())
            if order == "together":
                model, optimizer = accelerator.prepare(model, optimizer)
            elif order == "model first":
                model = accelerator.prepare(model)
                optimizer = accelerator.prepare(optimizer)
            else:
                optimizer = accelerator.prepare(optimizer)
                model = accelerator.prepare(model)
            accelerator.backward(model(torch.ones(1, 3)).sum())
            # The list is older than the shards, and is unscaled all the same: 15 ones of the weight, 5 of the bias.
            norm = accelerator.clip_grad_norm_(weights, 100.0)
            assert type(norm) is torch.Tensor and norm.item() == pytest.approx(20**0.5)
            optimizer.step()
            step(other, reference, torch.Tensor.backward)
            state = accelerator.get_state_dict(model)
            seen.append(all(torch.allclose(state[key], value) for key, value in other.state_dict().items()))
        return seen

    assert in_world(2, work) == [[True] * 3] * 2


def test_a_weight_that_was_read_before_it_was_sharded_trains_as_an_input():
    def work():
        accelerator = sharded()
        torch.manual_seed(0)
        table, net = nn.Embedding(6, 4), nn.Linear(4, 2)
        rows = table.weight
        optimizer = torch.optim.SGD([*table.parameters(), *net.parameters()], lr=0.5)
        table, net, optimizer = accelerator.prepare(table, net, optimizer)
        before = accelerator.get_state_dict(table)["weight"].clone()
        for given in ({"input": rows}, {}):
            accelerator.backward(net(**given).sum() if given else net(rows).sum())
            optimizer.step()
            optimizer.zero_grad()
            after = accelerator.get_state_dict(table)["weight"]
            assert not torch.equal(before, after)
            before = after.clone()
        return True

    assert in_world(2, work) == [True, True]


def test_a_forward_without_backward_leaves_nothing_stale():
    def work():
        accelerator = sharded()
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
        other = copy.deepcopy(model)
        optimizer, reference = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, other))
        model, optimizer = accelerator.prepare(model, optimizer)
        accelerator.unwrap_model(model).load_state_dict(other.state_dict())
        losses = []
        for one, stepper, backward in (
            (model, optimizer, accelerator.backward),
            (other, reference, torch.Tensor.backward),
        ):
            for evaluating in (torch.no_grad, nullcontext) * 2:
                backward(one(torch.ones(1, 3)).sum())
                with evaluating():
                    losses.append(one(torch.ones(1, 3)).item())
                assert evaluating is nullcontext or all(isinstance(w, DTensor) for w in model.parameters())
                clip = accelerator.clip_grad_norm_ if one is model else nn.utils.clip_grad_norm_
                clip(one.parameters(), 1.0)
                stepper.step()
                stepper.zero_grad()
        return losses

    for losses in in_world(1, work):
        assert losses[:4] == pytest.approx(losses[4:]) and losses[0] > losses[1] > losses[2] > losses[3]


def test_two_models_with_an_optimizer_each_and_memory_that_goes():
    def work():
        accelerator = sharded(mixed_precision="bf16")
        models = [nn.Linear(2, 3), nn.Linear(3, 1)]
        optimizers = [torch.optim.Adam(model.parameters(), lr=0.1) for model in models]
        first, second, *steppers = accelerator.prepare(*models, *optimizers)
        before = [accelerator.get_state_dict(model) for model in models]
        accelerator.backward(second(first(torch.ones(1, 2))).sum())
        steppers[0].step()
        steppers[1].step()
        after = [accelerator.get_state_dict(model) for model in models]
        moved = [not torch.equal(old["weight"], new["weight"]) for old, new in zip(before, after)]
        plain = accelerator.unwrap_model(first, keep_fp32_wrapper=False)
        assert isinstance(plain, FSDPModule) and type(plain).__name__ == "Linear"
        shard = weakref.ref(first.weight)
        models.clear()
        optimizers.clear()
        del plain
        first, second, *steppers = accelerator.free_memory(first, second, *steppers)
        return moved, gone(shard)

    assert in_world(2, work) == [([True, True], True)] * 2


def test_clipping_measures_over_all_shards_also_empty_ones():
    def work():
        accelerator = sharded()
        model = accelerator.prepare(nn.Linear(3, 1))  # one row, so that process 1 and 2 hold nothing of it
        inputs = torch.tensor([[3.0, 4.0, 0.0]])
        found = []
        for norm_type in (2.0, 1.0, float("inf")):
            model.zero_grad()
            accelerator.backward(model(inputs).sum())
            norm = accelerator.clip_grad_norm_(model.parameters(), 1.0, norm_type)
            found.append((norm.item(), whole(model.weight.grad).abs().max().item()))
        accelerator.backward(model(inputs).sum())
        accelerator.clip_grad_value_(model.parameters(), 0.5)
        return found, whole(model.weight.grad).tolist()

    for found, cut in in_world(3, work):
        norms = (26**0.5, 8.0, 4.0)
        assert found == [pytest.approx((norm, 4 / norm), rel=1e-5) for norm in norms]
        assert cut == [[0.5, 0.5, 0.0]]


def test_gradients_stay_apart_only_where_it_is_asked():
    class Coder(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(1, 1, bias=False)

        def forward(self, inputs):
            return self.inner(inputs)

        def encode(self, inputs):
            return self(inputs) * 2

    def work():
        accelerator = sharded()
        model = Coder()
        nn.init.ones_(model.inner.weight)
        model = accelerator.prepare(model)
        mine = torch.full((1, 1), 1.0 + accelerator.process_index)
        with accelerator.no_sync(model):
            accelerator.backward(model(mine).sum())
        assert all(weight.grad is None for weight in model.parameters())
        accelerator.backward(model(mine).sum())
        both = whole(model.inner.weight.grad).item()
        model.zero_grad()
        accelerator.register_forward_method(model, "encode")
        accelerator.backward(model.encode(mine).sum())
        return both, whole(model.inner.weight.grad).item()

    assert in_world(2, work) == [(3.0, 3.0)] * 2


def test_what_cannot_be_is_refused_by_name():
    def refused(match, work):
        with pytest.raises(AccelError, match=match), work() or nullcontext():
            pass

    def work():
        accelerator = sharded()
        model = accelerator.prepare(nn.Linear(2, 2))
        refused("join_uneven_inputs cannot work", lambda: accelerator.join_uneven_inputs([model]))
        scaled = nn.Sequential(nn.Linear(2, 2))
        scaled[0].level = nn.Parameter(torch.tensor(0.5))
        refused("0.level of Sequential cannot be sharded, having no dimension", lambda: accelerator.prepare(scaled))
        limited = nn.Sequential(nn.Embedding(5, 2, max_norm=1.0), nn.Linear(2, 1))
        refused("0 of Sequential has max_norm, by which its forward", lambda: accelerator.prepare(limited))
        refused("LocalSGD needs a whole model", lambda: LocalSGD(accelerator, model, 2))
        refused("Linear was not prepared", lambda: accelerator.no_sync(nn.Linear(1, 1)))
        lonely = nn.Linear(2, 2)
        accelerator.prepare(torch.optim.SGD(lonely.parameters(), lr=1.0))
        refused("SGD steps weights that are of no", lambda: accelerator.backward(model(lonely(torch.ones(1, 2))).sum()))
        named = sharded(plugin={"transformer_cls_names_to_wrap": ["Blok"]})
        refused("wrap_layers names Blok, and Transformer has no such", lambda: named.prepare(small_transformer()))
        return True

    assert in_world(2, work) == [True, True]


def test_no_file_holds_the_part_of_one_process(tmp_path):
    def work():
        accelerator = sharded()
        model = nn.Linear(2, 3)
        model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters()))
        accelerator.backward(model(torch.ones(1, 2)).sum())
        optimizer.step()
        for value, place in (
            (
                {"epoch": 1, "optimizer": optimizer.optimizer.state_dict()},
                "['optimizer']['state'][0]['exp_avg'] that is sharded",
            ),
            ({"net": model}, "['net'] that is sharded"),
            ({"step": optimizer}, "['step'] that is sharded"),
            (model.state_dict(), "['weight'] that is sharded"),
            (model, "a value that is sharded"),
        ):
            with pytest.raises(UsageError, match=re.escape(place)):
                accelerator.save(value, tmp_path / "parts.pt")
        with pytest.raises(UsageError, match="Linear is sharded, and a file of it"):
            torch.save({"net": model}, io.BytesIO())
        accelerator.save({"net": accelerator.get_state_dict(model), "rate": 0.1}, tmp_path / "whole.pt")

    in_world(2, work)
    assert [path.name for path in tmp_path.iterdir()] == ["whole.pt"]
    nn.Linear(2, 3).load_state_dict(torch.load(tmp_path / "whole.pt")["net"])


def test_an_optimizer_takes_a_whole_state_and_goes_on():
    def stepped(model, optimizer, backward):
        backward(model(torch.ones(1, 2)).square().sum())
        optimizer.step()
        optimizer.zero_grad()

    def work():
        accelerator = sharded()
        torch.manual_seed(0)
        plain = nn.Linear(2, 3)
        reference = torch.optim.Adam(plain.parameters(), lr=0.1)
        stepped(plain, reference, torch.Tensor.backward)
        model = copy.deepcopy(plain)
        model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.1))
        optimizer.load_state_dict(copy.deepcopy(reference.state_dict()))
        stepped(plain, reference, torch.Tensor.backward)
        stepped(model, optimizer, accelerator.backward)
        held = [value for state in optimizer.state.values() for name, value in state.items() if name != "step"]
        assert all(isinstance(value, DTensor) for value in held) and len(held) == 4
        return torch.allclose(accelerator.get_state_dict(model)["weight"], plain.weight)

    assert in_world(2, work) == [True, True]


def test_the_state_of_an_optimizer_is_a_copy_as_a_whole():
    def work():
        accelerator = sharded()
        model = nn.Linear(2, 3)
        model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1)))
        accelerator.backward(model(torch.ones(1, 2)).sum())
        optimizer.step()
        state = optimizer.state_dict()
        before = copy.deepcopy(state)
        optimizer.step()
        optimizer.param_groups[0]["lr"].mul_(2)
        return [
            (number, name)
            for number, values in [*state["state"].items(), ("group", state["param_groups"][0])]
            for name, value in values.items()
            if isinstance(value, torch.Tensor)
            and not torch.equal(value, (before["state"].get(number) or before["param_groups"][0])[name])
        ]

    assert in_world(1, work) == [[]]
    assert in_world(2, work) == [[], []]


def test_a_process_that_asks_alone_for_the_state_of_an_optimizer_is_refused():
    def work():
        accelerator = sharded()
        model = nn.Linear(4, 4, bias=False)
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        accelerator.backward(model(torch.ones(1, 4)).sum())
        optimizer.step()
        with pytest.raises(UsageError, match=r"rank 0 is in optimizer\.state_dict at .*, rank 1 is in gather at"):
            if accelerator.is_main_process:
                optimizer.state_dict()
            accelerator.gather(torch.ones(1))

    in_world(2, work)


def test_running_statistics_are_those_of_process_0():
    def work():
        accelerator = sharded()
        model = accelerator.prepare(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)))
        mine = torch.full((4, 2), 1.0 + accelerator.process_index) + torch.eye(4, 2)
        for _ in range(3):
            accelerator.backward(model(mine).sum())
        model.eval()
        with torch.no_grad():
            model(mine)
        return model[0].running_mean.tolist(), model[0].num_batches_tracked.item()

    first, second = in_world(2, work)
    assert first == second
    assert first == (pytest.approx([1.25 * (1 - 0.9**3)] * 2), 3)


def test_layers_with_running_statistics_stay_wide_where_others_are_gathered_narrow():
    def work():
        accelerator = sharded(plugin={"mixed_precision_policy": NARROW}, mixed_precision="bf16")
        model = nn.Sequential(nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 1, 3))
        dtypes = []
        for layer in (model[0], model[1]):
            layer.register_forward_pre_hook(lambda layer, _: dtypes.append(layer.weight.dtype))
        model = accelerator.prepare(model)
        accelerator.backward(model(torch.ones(2, 3, 8)).square().mean())
        return dtypes, {weight.grad.dtype for weight in model.parameters()}

    assert in_world(2, work) == [([torch.bfloat16, torch.float32], {torch.float32})] * 2


def test_gradients_that_are_not_finite_are_seen_by_all():
    def work():
        accelerator = sharded(nan_policy="skip")
        model = nn.Linear(2, 2)
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1.0))
        bad = float("nan") if accelerator.process_index == 1 else 1.0
        accelerator.backward(model(torch.ones(1, 2)).sum() * bad)
        with pytest.warns(UserWarning, match="are not finite; the step was left out"):
            optimizer.step()
        return accelerator.optimizer_step_was_skipped

    assert in_world(2, work) == [True, True]


def test_a_model_on_the_meta_device_is_made_block_by_block():
    def made(everywhere):
        accelerator = sharded()
        model = small_transformer()
        given = {key: value.clone() for key, value in model.state_dict().items()}
        if everywhere or not accelerator.is_main_process:
            model.to("meta")
        optimizer = torch.optim.AdamW(model.parameters())
        model, optimizer = accelerator.prepare(model, optimizer)
        assert all(isinstance(weight, DTensor) for group in optimizer.param_groups for weight in group["params"])
        return given, accelerator.get_state_dict(model)

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

    class Forgetful(Scaled):
        def reset_parameters(self):
            pass

    class Masked(Scaled):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.ones(3, dtype=torch.bool))

        def reset_parameters(self):
            nn.init.ones_(self.scale)

    class Authored(Transformer):
        def _init_weights(self, module):
            if isinstance(module, nn.Embedding):
                nn.init.constant_(module.weight, 0.5)

    def work():
        given, taken = made(everywhere=False)
        assert all(torch.equal(value, taken[key]) for key, value in given.items())
        _, fresh = made(everywhere=True)
        assert (
            torch.equal(fresh["norm.weight"], torch.ones(32)) and fresh["blocks.0.attention.out_proj.bias"].sum() == 0
        )
        refusals = (
            (Scaled, "no reset_param"),
            (Forgetful, "scale of Forgetful"),
            (Masked, "mask of Masked .* does not set"),
        )
        for kind, match in refusals:
            with torch.device("meta"):
                model = kind()
            with pytest.raises(UsageError, match=match):
                sharded().prepare(model)
        with torch.device("meta"):
            model, authored = Scaled(), Authored()
        accelerator = sharded()
        state = accelerator.get_state_dict(accelerator.prepare(authored))
        assert state["words.weight"].unique().tolist() == [0.5] and state["head.weight"].std() > 0.05
        accelerator = sharded(plugin={"param_init_fn": lambda module: nn.init.constant_(module.scale, 7)})
        seven = accelerator.get_state_dict(accelerator.prepare(model))["scale"]
        return fresh["words.weight"].std().item(), fresh["blocks.1.widen.weight"].tolist(), seven.tolist()

    first, second = in_world(2, work)
    assert first == second
    assert 0.9 < first[0] < 1.1 and first[2] == [7.0] * 3
