"""A small language model with all that makes dispatching hard: tied weights, buffers, residual blocks, own parameters."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """A residual connection: it breaks when its parts are on different devices."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.norm = nn.BatchNorm1d(2 * width)
        self.down = nn.Linear(2 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Tensor, shift: Tensor | None = None) -> Tensor:
        inner = self.down(torch.relu(self.norm(self.up(x))))
        return x + inner * self.scale + (0 if shift is None else shift)


class Head(nn.Module):
    """Scores of words, with a weight that it may share."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(words, width))
        self.bias = nn.Parameter(torch.linspace(0, 1, words))
        self.register_buffer("temperature", torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias) / self.temperature


class Language(nn.Module):
    """Embedding, blocks, and a head that shares the embedding's weight."""

    def __init__(self, words: int = 32, width: int = 16, blocks: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = Head(words, width)
        self.head.weight = self.embedding.weight
        self.start = nn.Parameter(torch.linspace(0, 1, width))
        self.register_buffer("positions", torch.arange(width) / width, persistent=False)

    def forward(self, words: Tensor) -> dict[str, Tensor]:
        x = self.start + self.positions
        x = self.embedding(words).mean(1) + x
        for block in self.blocks:
            x = block(x, shift=self.positions)
        return {"scores": self.head(x), "last": x}


def trained() -> Language:
    """With weights and statistics that no initialisation gives."""
    torch.manual_seed(7)
    model = Language()
    for _ in range(3):
        model(torch.randint(32, (8, 5)))
    return model.eval()


WORDS = torch.randint(32, (6, 5), generator=torch.Generator().manual_seed(1))
