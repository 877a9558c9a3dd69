"""The order of weights in DDP's messages, which decides in what order more than two processes add up gradients.

DDP finds the order in its first backward pass and sends by it from the second on. A resumed run would begin with the
first order again, and add up differently in the last bit; so the order goes into checkpoints, and is found again from
there without data.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel


def layout_of(model: DistributedDataParallel) -> list[str]:
    """The names of the weights, as they follow each other in the messages."""
    names = {id(weight): name for name, weight in model.module.named_parameters()}
    buckets = model.reducer._get_zeros_like_grad_buckets()
    return [names[id(weight)] for bucket in buckets for weight in bucket.parameters()]


def rehearse(model: DistributedDataParallel, layout: list[str]) -> None:
    """A backward pass of zeros in which gradients come in this order, by which messages are arranged then."""
    if layout == layout_of(model):
        return
    weights = dict(model.module.named_parameters())
    gradients = {name: weight.grad for name, weight in weights.items()}
    for weight in weights.values():
        weight.grad = None
    model.reducer.prepare_for_backward([])
    # What was computed last has its gradient first.
    zeros: Tensor = sum((weights[name].flatten()[:1] * 0).sum() for name in reversed(layout))
    zeros.backward()  # type: ignore[no-untyped-call]
    model.reducer._rebuild_buckets()
    for name, weight in weights.items():
        weight.grad = gradients[name]
