"""fp8: which layers compute in 8 bits, that a training falls in it, and that nothing is emulated unasked."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from accel_runtime import Accelerator, AORecipeKwargs, TERecipeKwargs
from accel_runtime.errors import ConfigError, UsageError
from torch import nn

from tests.distributed.transformer import ACCUMULATION, alone, small_transformer, train
from tests.distributed.worlds import in_world

torchao = pytest.mark.skipif(find_spec("torchao") is None, reason="torchao is not installed")
CONVERTED = {"blocks.0.narrow", "blocks.1.widen", "blocks.1.narrow"}


def kinds(model: nn.Module) -> set[str]:
    return {name for name, layer in model.named_modules() if type(layer).__name__ == "Float8Linear"}


@torchao
def test_layers_between_the_first_and_the_last_are_converted_over_the_same_weights(caplog: Any) -> None:
    model = small_transformer()
    weights, names = [id(weight) for weight in model.parameters()], list(model.state_dict())
    accelerator = Accelerator(cpu=True, mixed_precision="fp8-emulated")
    prepared = accelerator.prepare(model)
    assert kinds(prepared) == CONVERTED
    assert [id(weight) for weight in prepared.parameters()] == weights
    assert list(accelerator.get_state_dict(prepared)) == names
    assert accelerator.mixed_precision == "fp8"
    assert "3 Linear layers of Transformer compute in 8 bits" in caplog.text
    assert "in bf16 stay blocks.0.widen (the first), head (the last)" in caplog.text
    assert kinds(Accelerator(cpu=True, mixed_precision="fp8-emulated").prepare(model)) == CONVERTED


@torchao
def test_layers_of_odd_sizes_and_those_the_filter_leaves_are_named(caplog: Any) -> None:
    sizes = [16, 32, 24, 32, 32, 16]
    model = nn.Sequential(*(nn.Linear(*pair) for pair in pairwise(sizes)))
    kept = AORecipeKwargs(module_filter_func=lambda layer, name: name != "9")
    accelerator = Accelerator(cpu=True, mixed_precision="fp8-emulated", kwargs_handlers=[kept])
    assert kinds(accelerator.prepare(model)) == {"3"}
    assert "1 (32 x 24, no multiples of 16), 2 (24 x 32, no multiples of 16)" in caplog.text
    filtered = AORecipeKwargs(module_filter_func=lambda layer, name: False)
    accelerator = Accelerator(cpu=True, mixed_precision="fp8-emulated", kwargs_handlers=[filtered])
    with pytest.raises(UsageError, match=r"no Linear layer of Transformer can compute in fp8.*as the filter says"):
        accelerator.prepare(small_transformer())


@torchao
def test_a_frozen_model_stays_as_it_is() -> None:
    model = small_transformer().requires_grad_(False)
    assert kinds(Accelerator(cpu=True, mixed_precision="fp8-emulated").prepare(model)) == set()


@torchao
def test_a_training_in_fp8_falls_on_one_process_and_alike_on_two() -> None:
    def losses() -> list[float]:
        settings = {"mixed_precision": "fp8-emulated", "gradient_accumulation_steps": ACCUMULATION}
        return train(Accelerator(cpu=True, **settings)).losses  # type: ignore[arg-type]

    two, other = in_world(2, losses)
    one, precise = losses(), alone().losses
    assert one != precise, "nothing was computed in 8 bits"
    assert two == other
    for fallen in (one, two):
        assert fallen[-1] < fallen[0] / 10
        assert fallen[:10] == pytest.approx(precise[:10], rel=0.05)


@torchao
def test_emulation_is_only_on_request() -> None:
    with pytest.raises(ConfigError, match="on cpu is refused: it needs a GPU that multiplies in 8 bits"):
        Accelerator(cpu=True, mixed_precision="fp8")


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torchao", "transformer_engine"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="needs torchao; pip install torchao, or use bf16"):
        Accelerator(cpu=True, mixed_precision="fp8-emulated")
    with pytest.raises(ConfigError, match="TERecipeKwargs asks for Transformer Engine, which is not installed"):
        Accelerator(cpu=True, mixed_precision="fp8-emulated", kwargs_handlers=[TERecipeKwargs()])


class ImitatedLinear(nn.Module):
    """Multiplies as torch does, and notes under which recipe."""

    recipes: ClassVar[list[Any]] = []

    def __init__(self, inputs: int, outputs: int, bias: bool, params_dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs, dtype=params_dtype))
        self.bias = nn.Parameter(torch.zeros(outputs, dtype=params_dtype)) if bias else None

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        assert self.recipes, "outside of fp8_autocast"
        return nn.functional.linear(inputs, self.weight, self.bias)


@pytest.fixture
def imitated_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transformer Engine needs an NVIDIA GPU even to be imported."""

    @contextmanager
    def fp8_autocast(enabled: bool, fp8_recipe: Any) -> Any:
        ImitatedLinear.recipes.append(fp8_recipe)
        yield
        ImitatedLinear.recipes.pop()

    recipe = SimpleNamespace(DelayedScaling=SimpleNamespace, Format={"HYBRID": "hybrid", "E4M3": "e4m3"})
    modules = {
        "transformer_engine": ModuleType("transformer_engine"),
        "transformer_engine.pytorch": SimpleNamespace(Linear=ImitatedLinear, fp8_autocast=fp8_autocast),
        "transformer_engine.common": SimpleNamespace(recipe=recipe),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    modules["transformer_engine"].pytorch = modules["transformer_engine.pytorch"]  # type: ignore[attr-defined]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())


def test_transformer_engine_gets_the_same_weights_and_a_recipe_around_forward(imitated_engine: None) -> None:
    model = small_transformer()
    before = dict(model.named_parameters())
    handler = TERecipeKwargs(fp8_format="E4M3")
    accelerator = Accelerator(cpu=True, mixed_precision="fp8-emulated", kwargs_handlers=[handler])
    prepared = accelerator.prepare(model)
    converted = {name for name, layer in prepared.named_modules() if isinstance(layer, ImitatedLinear)}
    assert converted == CONVERTED
    assert all(weight is before[name] for name, weight in prepared.named_parameters())
    assert prepared(torch.zeros(1, 4, dtype=torch.long)).dtype is torch.float32
    assert not ImitatedLinear.recipes
