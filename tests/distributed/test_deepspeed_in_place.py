"""In DeepSpeed's engine, too, the prepared model is the model: what it is asked for, and what is written into it, holds."""

import copy
import io
import pickle

import pytest
import torch
from accel_runtime import Accelerator, DeepSpeedPlugin
from accel_runtime.errors import UsageError
from accel_runtime.strategies.deepspeed_model import GatheredMethod
from torch import nn

from tests.distributed.ways import CALLED, Coder, assert_alike, bare_weights, forward, method, trained
from tests.distributed.worlds import in_world
from tests.distributed.zero import PATIENCE, SHARDED, accelerator, needs_deepspeed

pytestmark = needs_deepspeed

WHOLE = {
    "ZeRO 1": {"zero_stage": 1},
    "ZeRO 2": {"zero_stage": 2},
    "ZeRO 2, optimizer on the CPU": {"zero_stage": 2, "offload_optimizer_device": "cpu"},
}
STAGES = {
    **WHOLE,
    "ZeRO 3": {"zero_stage": 3, "hf_ds_config": SHARDED},
    "ZeRO 3, small weights not sharded": {"zero_stage": 3},
}


def test_the_loss_may_be_made_in_any_way():
    cases = [(plugin, way) for plugin in STAGES.values() for way in CALLED]
    cases += [(plugin, bare_weights) for plugin in WHOLE.values()]
    results = in_world(2, lambda: [trained(accelerator(steps=2, **plugin), way) for plugin, way in cases], PATIENCE)
    for (_, way), *each in zip(cases, *results):
        assert_alike(trained(Accelerator(cpu=True, gradient_accumulation_steps=2), way), each)


class Shifted(Coder):
    """Has weights of its own, which no call of a layer gathers."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.ones(5))

    def encode(self, x):
        return torch.tanh(self.encoder(x)) + self.shift, "a note"

    def forward(self, x):
        return self.head(self.encode(x)[0])

    def loss(self, x):
        return (self(x) * self.shift).pow(2).mean() + self.head.weight.abs().sum()


def by_parts(alias, model, x):
    coded, note = model.encode(x)
    return model.head(coded).pow(2).mean() * len(note)


def by_loss_after_another(alias, model, x):
    model.encode(x)
    with torch.no_grad():
        model.loss(x)
    return model.loss(x)


def test_a_registered_method_has_the_weights_of_the_model_itself():
    ways = [forward, method, by_parts, by_loss_after_another]
    cases = [(plugin, way) for name, plugin in STAGES.items() if "3" in name for way in ways]

    def work():
        return [
            trained(accelerator(steps=2, **plugin), way, of=Shifted, methods=("encode", "loss"))
            for plugin, way in cases
        ]

    for (_, way), *each in zip(cases, *in_world(2, work, PATIENCE)):
        assert_alike(trained(Accelerator(cpu=True, gradient_accumulation_steps=2), way, of=Shifted), each)


def test_copies_have_registered_methods_of_their_own():
    model = Shifted()
    vars(model)["loss"] = GatheredMethod(model, "loss")
    for copied in copies_of(model):
        assert copied.loss.__self__ is copied
    assert torch.equal(model.loss(torch.ones(1, 3)), copied.loss(torch.ones(1, 3)))


def loaded(model):
    model.load_state_dict({name: torch.full(weight.shape, 0.3) for name, weight in Coder().named_parameters()})


def part_loaded(model):
    model.encoder.load_state_dict({"weight": torch.full((5, 3), 0.3)}, strict=False)


def clamped(model):
    for weight in model.parameters():
        weight.data.clamp_(-0.2, 0.2)


def halved(model):
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.5)


def exchanged(model):
    for weight in model.parameters():
        weight.data = weight.data.clone() * 0.5


def test_what_is_written_into_weights_is_trained_on():
    cases = [(plugin, written) for plugin in STAGES.values() for written in (loaded, part_loaded)]
    cases += [(plugin, written) for plugin in WHOLE.values() for written in (clamped, halved, exchanged)]
    work = lambda: [trained(accelerator(steps=1, **plugin), forward, written) for plugin, written in cases]  # noqa: E731
    for (_, written), *each in zip(cases, *in_world(2, work, PATIENCE)):
        assert_alike(trained(Accelerator(cpu=True), forward, written), each)


def test_narrow_weights_are_loaded_in_full_precision():
    def work(plugin):
        config = {**plugin.get("hf_ds_config", {}), "bf16": {"enabled": "auto"}}
        ours = accelerator("bf16", 1, **{**plugin, "hf_ds_config": config})
        model = nn.Linear(2, 1, bias=False)
        model, optimizer = ours.prepare(model, torch.optim.Adam(model.parameters(), lr=1e-3))
        for _ in range(2):
            ours.backward(model(torch.ones(1, 2)).sum())
            optimizer.step()
            model.load_state_dict({"weight": torch.tensor([[1.001, 2.0]])})
        kept = optimizer.state_dict()["state"][0]["master_weight"].flatten().tolist()
        return kept, ours.get_state_dict(model)["weight"].flatten().tolist()

    for results in in_world(2, lambda: [work(plugin) for plugin in STAGES.values()], PATIENCE):
        for master, weight in results:
            assert master == pytest.approx([1.001, 2.0], abs=1e-6)
            assert weight == [1.0, 2.0]


def test_the_prepared_model_is_the_model():
    def work(plugin):
        ours = accelerator(steps=1, **plugin)
        model = Coder()
        kind, names, shapes = type(model), list(model.state_dict()), [weight.shape for weight in model.parameters()]
        prepared, optimizer = ours.prepare(model, torch.optim.SGD(model.parameters()))
        before = prepared(torch.ones(1, 3)).item()
        prepared.scale = 2.0
        prepared.eval()
        refused = ""
        try:
            prepared.load_state_dict({**ours.get_state_dict(prepared), "head.bias": torch.ones(2)})
        except RuntimeError as error:
            refused = str(error)
        return {
            "identity": prepared is model,
            "again": ours.prepare(prepared) is model,
            "unwrapped": ours.unwrap_model(prepared) is model,
            "kind": type(prepared) is kind,
            "names": [name for name, _ in prepared.named_parameters()] == names == list(prepared.state_dict()),
            "shapes": [weight.shape for weight in ours.get_state_dict(prepared).values()] == shapes,
            "attribute": prepared.config == {"width": 5},
            "set attribute": prepared(torch.ones(1, 3)).item() == 2 * before,
            "modes": not any(module.training for module in model.modules()),
            "engine": optimizer.optimizer.engine.module is model,
            "other shape": "size mismatch for head.bias" in refused,
        }

    for results in in_world(2, lambda: {name: work(plugin) for name, plugin in STAGES.items()}, PATIENCE):
        for stage, told in results.items():
            assert all(told.values()), (stage, told)


def copies_of(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)


def test_copies_have_whole_weights_and_no_engine():
    def work(plugin, precision):
        ours = accelerator(precision, 1, **plugin)
        model = Coder()
        model, _ = ours.prepare(model, torch.optim.SGD(model.parameters()))
        for copied in copies_of(model):
            assert isinstance(copied, Coder)
            assert all(torch.equal(copied.state_dict()[name], weight) for name, weight in model.state_dict().items())
            if ours.is_main_process:  # nobody answers
                copied(torch.ones(1, 3)).sum().backward()
                assert copied.encoder.weight.grad is not None
            copied.load_state_dict(Coder().state_dict())
        assert len(pickle.dumps(model)) < 10_000, "the memory of all weights goes along with each"

    in_world(2, lambda: [work(plugin, way) for plugin in WHOLE.values() for way in ("no", "bf16")], PATIENCE)


def test_shards_are_not_copied():
    def work():
        ours = accelerator(steps=1, **STAGES["ZeRO 3"])
        model = Coder()
        model, _ = ours.prepare(model, torch.optim.SGD(model.parameters()))
        for copied in (copy.deepcopy, pickle.dumps, lambda model: torch.save(model, io.BytesIO())):
            with pytest.raises(UsageError, match=r"ZeRO 3 .*get_state_dict\(model\)"):
                copied(model)

    in_world(2, work, PATIENCE)


def test_what_is_written_into_shards_is_refused_and_what_is_loaded_is_not():
    def work():
        ours = accelerator(steps=1, **STAGES["ZeRO 3"])
        model = Coder()
        model, optimizer = ours.prepare(model, torch.optim.SGD(model.parameters()))

        def step():
            ours.backward(model(torch.ones(1, 3)).sum())
            optimizer.step()

        step()
        model.load_state_dict(Coder().state_dict())
        step()
        nn.init.ones_(model.head.weight)
        with pytest.raises(
            UsageError, match=r"a weight of shape \(1, 5\) was written to, and under ZeRO 3 that is lost"
        ):
            step()

    in_world(2, work, PATIENCE)


def test_a_compiled_model_trains_alike():
    def work():
        plugin = DeepSpeedPlugin(zero_stage=2)
        return trained(Accelerator(cpu=True, dynamo_backend="eager", deepspeed_plugin=plugin), forward)

    assert_alike(trained(Accelerator(cpu=True), forward), in_world(2, work, PATIENCE))


def test_a_model_whose_training_has_ended_can_be_prepared_again():
    def work(plugin):
        ours = accelerator(steps=1, **plugin)
        model = nn.Linear(1, 1, bias=False)
        model.load_state_dict({"weight": torch.ones(1, 1)})
        for _ in range(2):
            model, optimizer = ours.prepare(model, torch.optim.SGD(model.parameters(), lr=0.25))
            ours.backward(model(torch.ones(1, 1)).sum())
            optimizer.step()
            ours.free_memory()
        return ours.get_state_dict(model)["weight"].item()

    for weights in in_world(2, lambda: [work(plugin) for plugin in STAGES.values()], PATIENCE):
        assert weights == [0.5] * len(STAGES)
