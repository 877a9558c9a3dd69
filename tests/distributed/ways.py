"""A model that is the model still once it is prepared: whichever way its loss is made, it is trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from accel_runtime import Accelerator
from torch import Tensor, nn

STEPS = 6


class Coder(nn.Module):
    scale = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = nn.Linear(3, 5), nn.Linear(5, 1)
        self.config = {"width": 5}

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.encoder(x))) * self.scale

    def loss(self, x: Tensor) -> Tensor:
        return self(x).pow(2).mean()

    def __getitem__(self, number: int) -> nn.Module:
        return (self.encoder, self.head)[number]


# Each takes the model as it was before `prepare`, what that returned, and a batch.
Way = Callable[[Coder, Coder, Tensor], Tensor]


def forward(alias: Coder, model: Coder, x: Tensor) -> Tensor:
    return model(x).pow(2).mean()


def alias_of_before(alias: Coder, model: Coder, x: Tensor) -> Tensor:
    return alias(x).pow(2).mean()


def method(alias: Coder, model: Coder, x: Tensor) -> Tensor:
    return model.loss(x)


def parts(alias: Coder, model: Coder, x: Tensor) -> Tensor:
    return model.head(torch.tanh(model.encoder(x))).pow(2).mean()


def one_part(alias: Coder, model: Coder, x: Tensor) -> Tensor:
    return model[0](x).pow(2).mean()


def two_passes(alias: Coder, model: Coder, x: Tensor) -> Tensor:
    return model(x).pow(2).mean() + model(-x).abs().mean()


def bare_weights(alias: Coder, model: Coder, x: Tensor) -> Tensor:
    return nn.functional.linear(x, model.encoder.weight).pow(2).mean()


def functional(alias: Coder, model: Coder, x: Tensor) -> Tensor:
    return torch.func.functional_call(model, dict(model.named_parameters()), (x,)).pow(2).mean()


CALLED = [forward, alias_of_before, method, parts, one_part, two_passes]
UNCALLED = [bare_weights, functional]  # which a model that lies in parts cannot serve


def trained(
    accelerator: Accelerator,
    way: Way,
    written: Callable[[Coder], None] | None = None,
    of: type[Coder] = Coder,
    methods: tuple[str, ...] = (),
) -> list[Any]:
    """The weights after some steps, which are the same on any world; `written` is done to the model after each."""
    torch.manual_seed(1)
    alias = of()
    # Without weight decay, which DeepSpeed applies to weights without a gradient, too.
    model, optimizer = accelerator.prepare(alias, torch.optim.Adam(alias.parameters(), lr=0.1))
    for name in methods:
        accelerator.register_forward_method(model, name)
    for x in torch.arange(STEPS * 12.0).reshape(STEPS, 4, 3).sin():
        x = x[accelerator.process_index :: accelerator.num_processes]
        with accelerator.accumulate(model):
            accelerator.backward(way(alias, model, x))
            optimizer.step()
            optimizer.zero_grad()
        if written:
            written(model)
    weights = [weight.tolist() for weight in accelerator.get_state_dict(model).values()]
    accelerator.free_memory()
    return weights


def assert_alike(reference: list[Any], results: list[list[Any]]) -> None:
    """All processes ended with the same weights, and those of one process but for rounding."""
    for weights in results:
        assert weights == results[0]
        for one, other in zip(reference, weights, strict=True):
            assert torch.allclose(torch.tensor(one), torch.tensor(other), atol=1e-5)
