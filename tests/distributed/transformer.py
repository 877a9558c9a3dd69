"""A small transformer and its training, by whose losses strategies and precisions are compared with one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from accel_runtime import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 30  # of the optimizer
ACCUMULATION = 2
GLOBAL_BATCH = 12  # samples of one micro-step, over all processes
WORDS, LENGTH, WIDTH = 32, 12, 32


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        normed = self.norm(hidden)
        hidden = hidden + self.attention(normed, normed, normed, need_weights=False)[0]
        return hidden + self.narrow(nn.functional.gelu(self.widen(hidden)))


class Transformer(nn.Module):
    """Guesses each word from the words around it."""

    def __init__(self, blocks: int = 2) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        hidden = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        for block in self.blocks:
            hidden = block(hidden)
        guesses: Tensor = self.head(self.norm(hidden))
        return guesses


def small_transformer() -> Transformer:
    torch.manual_seed(0)
    return Transformer()


def sentences() -> TensorDataset:
    """As many as the training takes, each counting on from a random word."""
    starts = torch.randint(WORDS, (STEPS * ACCUMULATION * GLOBAL_BATCH, 1), generator=torch.Generator().manual_seed(1))
    return TensorDataset((starts + torch.arange(LENGTH + 1)) % WORDS)


@dataclass(frozen=True)
class Run:
    """`losses` is the mean over all processes of every micro-step; bytes are of this process after the last step."""

    losses: list[float]
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int


def train(accelerator: Accelerator, model: nn.Module | None = None, steps: int = STEPS) -> Run:
    """Trains with AdamW, clipping and the Accelerator's accumulation; the global batch is the same on any world."""
    model = model or small_transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(sentences(), GLOBAL_BATCH // accelerator.num_processes)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses: list[float] = []
    gradient_bytes = 0
    for (words,) in loader:
        with accelerator.accumulate(model):
            guesses = model(words[:, :-1])
            loss = nn.functional.cross_entropy(guesses.flatten(0, 1), words[:, 1:].flatten())
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
                gradient_bytes = local_bytes(weight.grad for weight in model.parameters())
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())
        if len(losses) == steps * ACCUMULATION:
            break
    states = (value for state in optimizer.state.values() for value in state.values())
    return Run(losses, local_bytes(model.parameters()), gradient_bytes, local_bytes(states))


def alone(steps: int = STEPS) -> Run:
    """The training that all others are compared with: one process, full precision."""
    return train(Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATION), steps=steps)


def local_bytes(values: Iterable[Any]) -> int:
    """What the tensors among the values take on this process; of a sharded one only its shard counts."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    local: Callable[[Tensor], Tensor] = lambda tensor: getattr(tensor, "_local_tensor", tensor)  # noqa: E731
    return sum(local(tensor).numel() * tensor.element_size() for tensor in tensors)


def relative_distance(ours: list[float], others: list[float]) -> float:
    """The largest difference of two losses of one step, as a share of the loss."""
    assert len(ours) == len(others)
    return max(abs(one - other) / abs(other) for one, other in zip(ours, others))
