"""Half precision on the CPU: what runs narrow, what comes out, and what is refused."""

import pickle

import pytest
import torch
from accel_runtime import Accelerator, AutocastKwargs, GradScalerKwargs
from accel_runtime.errors import ConfigError, UsageError
from accel_runtime.precision.autocast import AutocastForward
from torch import nn


class Spy(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.seen = []

    def forward(self, inputs):
        outputs = self.inner(inputs)
        self.seen.append(outputs.dtype)
        return {"logits": outputs, "pair": (outputs, 3)}

    def encode(self, inputs):
        return self.inner(inputs)


@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_forward_runs_narrow_and_gives_full_precision_back(name, dtype):
    accelerator = Accelerator(cpu=True, mixed_precision=name)
    model = accelerator.prepare(Spy())
    outputs = model(torch.ones(1, 2))
    assert model.seen == [dtype]
    assert outputs["logits"].dtype is outputs["pair"][0].dtype is torch.float32
    assert outputs["pair"][1] == 3
    assert model.encode(torch.ones(1, 2)).dtype is torch.float32
    with accelerator.autocast():
        assert model.encode(torch.ones(1, 2)).dtype is dtype
    with accelerator.autocast(AutocastKwargs(enabled=False)):
        assert model.encode(torch.ones(1, 2)).dtype is torch.float32


def test_a_model_can_have_its_own_forward_back():
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    model = accelerator.prepare(Spy())
    assert accelerator.unwrap_model(model) is model
    assert isinstance(model, AutocastForward)
    accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    model(torch.ones(1, 2))
    assert model.seen == [torch.float32]
    assert type(model) is Spy


def test_a_forward_patched_on_the_instance_runs_narrow_too():
    model = nn.Linear(2, 2)
    seen = []

    def patched(inputs):
        outputs = nn.functional.linear(inputs, model.weight)
        seen.append(outputs.dtype)
        return outputs

    model.forward = patched
    prepared = Accelerator(cpu=True, mixed_precision="bf16").prepare(model)
    assert prepared(torch.ones(1, 2)).dtype is torch.float32
    assert seen == [torch.bfloat16]


def test_a_prepared_model_can_be_pickled():
    model = Accelerator(cpu=True, mixed_precision="bf16").prepare(nn.Linear(2, 2))
    twin = pickle.loads(pickle.dumps(model))
    assert type(twin) is type(model)
    assert torch.equal(twin(torch.ones(1, 2)), model(torch.ones(1, 2)))


def test_half_weights_are_refused_by_name():
    with pytest.raises(UsageError, match=r"2 of Linear are float16 \(weight, bias\)"):
        Accelerator(cpu=True, mixed_precision="fp16").prepare(nn.Linear(1, 1).half())
    frozen = nn.Linear(1, 1).half().requires_grad_(False)
    assert Accelerator(cpu=True, mixed_precision="fp16").prepare(frozen) is frozen
    Accelerator(cpu=True, mixed_precision="bf16").prepare(nn.Linear(1, 1).bfloat16())


def test_scaled_losses_need_a_prepared_optimizer():
    accelerator = Accelerator(cpu=True, mixed_precision="fp16")
    model = accelerator.prepare(nn.Linear(1, 1))
    with pytest.raises(UsageError, match="no optimizer was prepared"):
        accelerator.backward(model(torch.ones(1, 1)).sum())


def test_a_closure_under_fp16_is_refused_by_name():
    accelerator = Accelerator(cpu=True, mixed_precision="fp16")
    optimizer = accelerator.prepare(torch.optim.LBFGS(nn.Linear(1, 1).parameters()))
    with pytest.raises(UsageError, match=r"LBFGS.step\(closure\)"):
        optimizer.step(lambda: None)


def test_gradients_are_unscaled_once_however_often_they_are_clipped():
    accelerator = Accelerator(cpu=True, mixed_precision="fp16", kwargs_handlers=[GradScalerKwargs(init_scale=1024.0)])
    model = nn.Linear(1, 1, bias=False)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1.0))
    for _ in range(2):
        accelerator.backward(3 * model(torch.ones(1, 1)).sum())
        assert model.weight.grad.item() == 3 * 1024
        assert accelerator.clip_grad_norm_(model.parameters(), 100.0).item() == pytest.approx(3)
        assert accelerator.clip_grad_norm_(model.parameters(), 100.0).item() == pytest.approx(3)
        optimizer.step()
        optimizer.zero_grad()


def one_weight():
    accelerator = Accelerator(cpu=True, mixed_precision="fp16", kwargs_handlers=[GradScalerKwargs(init_scale=1024.0)])
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    return accelerator, *accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1.0))


def test_gradients_that_were_clipped_are_scaled_again_before_a_pass_adds_to_them():
    accelerator, model, optimizer = one_weight()
    accelerator.backward(3 * model(torch.ones(1, 1)).sum())
    accelerator.clip_grad_norm_(model.parameters(), 2.0)
    accelerator.backward(model(torch.ones(1, 1)).sum())
    assert accelerator.clip_grad_norm_(model.parameters(), 100.0).item() == pytest.approx(2 + 1)
    optimizer.step()
    assert model.weight.item() == pytest.approx(-3)


def test_gradients_have_their_true_size_after_a_step():
    accelerator, model, optimizer = one_weight()
    for rounds in (1, 2):  # the gradients are not zeroed: the second pass adds to those of the first
        accelerator.backward(3 * model(torch.ones(1, 1)).sum())
        optimizer.step()
        assert model.weight.grad.item() == pytest.approx(3 * rounds)
        assert accelerator.clip_grad_norm_(model.parameters(), 100.0).item() == pytest.approx(3 * rounds)
    assert model.weight.item() == pytest.approx(-3 - 6)


def test_a_step_before_the_first_backward_pass_does_nothing():
    accelerator, model, optimizer = one_weight()
    optimizer.step()
    assert model.weight.item() == 0
    accelerator.backward(model(torch.ones(1, 1)).sum())
    optimizer.step()
    assert model.weight.item() == -1


def test_two_optimizers_share_one_scale_for_one_loss():
    """The scale may change only when both have stepped: the second still holds gradients of the old one."""
    accelerator = Accelerator(
        cpu=True, mixed_precision="fp16", kwargs_handlers=[GradScalerKwargs(init_scale=2.0**14, growth_interval=1)]
    )
    weights = [nn.Linear(1, 1, bias=False) for _ in range(2)]
    for layer in weights:
        nn.init.zeros_(layer.weight)
    model = accelerator.prepare(nn.ModuleList(weights))
    optimizers = [accelerator.prepare(torch.optim.SGD(layer.parameters(), lr=1.0)) for layer in weights]
    accelerator.backward(-sum(layer(torch.ones(1, 1)).sum() for layer in model))
    for optimizer in optimizers:
        optimizer.step()
    assert [layer.weight.item() for layer in weights] == [1.0, 1.0]


def test_clipping_one_model_leaves_the_others_gradients_scaled():
    accelerator = Accelerator(cpu=True, mixed_precision="fp16", kwargs_handlers=[GradScalerKwargs(init_scale=256.0)])
    one, other = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    one, other, *_ = accelerator.prepare(
        one, other, torch.optim.SGD(one.parameters()), torch.optim.SGD(other.parameters())
    )
    accelerator.backward((one(torch.ones(1, 1)) + other(torch.ones(1, 1))).sum())
    accelerator.clip_grad_norm_(one.parameters(), 10.0)
    assert one.weight.grad.item() == pytest.approx(1)
    assert other.weight.grad.item() == 256
    accelerator.clip_grad_value_(other.parameters(), 0.5)
    assert other.weight.grad.item() == 0.5


def test_matmul_precision_is_changed_only_on_request(monkeypatch):
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        Accelerator(cpu=True)
        assert torch.get_float32_matmul_precision() == "high"
        monkeypatch.setenv("ACCEL_MATMUL_PRECISION", "medium")
        Accelerator(cpu=True)
        assert torch.get_float32_matmul_precision() == "medium"
        Accelerator(cpu=True, matmul_precision="highest")
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision(before)
    with pytest.raises(ConfigError, match="tf32"):
        Accelerator(cpu=True, matmul_precision="tf32")


def test_gradients_are_unscaled_once_where_a_later_optimizer_steps_the_same_model():
    accelerator = Accelerator(cpu=True, mixed_precision="fp16", autocast_forward=False)
    model = nn.Linear(1, 1, bias=False)

    def phase(model):
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.0))
        for _ in range(2):
            optimizer.zero_grad()
            accelerator.backward(model(torch.ones(1, 1)).sum())
            yield float(accelerator.clip_grad_norm_(model.parameters(), 10.0))
            optimizer.step()

    assert [*phase(model), *phase(model)] == [1.0] * 4


@pytest.mark.parametrize("stepping", [0, 1])
def test_gradients_are_unscaled_once_where_two_optimizers_have_the_same_weights(stepping: int):
    accelerator = Accelerator(cpu=True, mixed_precision="fp16", autocast_forward=False)
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(3.0)
    model, *optimizers = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.5), torch.optim.SGD(model.parameters(), lr=0.5)
    )
    optimizer = optimizers[stepping]  # the other one is kept too, as an exception keeps what its frames have
    for weight in (2.5, 2.0):
        optimizer.zero_grad()
        accelerator.backward(model(torch.ones(1, 1)).sum())
        assert float(accelerator.clip_grad_norm_(model.parameters(), 10.0)) == 1.0
        optimizer.step()
        assert model.weight.item() == weight
    accelerator.backward(model(torch.ones(1, 1)).sum())  # adds to what was not zeroed
    assert float(accelerator.clip_grad_norm_(model.parameters(), 10.0)) == 2.0
