"""A queue of the device beside the one in which it computes, on which batches are copied."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch

from accel_runtime.tree import Tree, leaves


class TorchStream:
    """Entered, it takes what the process asks of the device."""

    def __init__(self, device: torch.device) -> None:
        # Any: every device brings its own module, with the same functions by convention.
        self.module: Any = torch.get_device_module(device)
        self.device = device
        self.stream = self.module.Stream(device)
        self.entered = self.module.stream(self.stream)

    def __enter__(self) -> None:
        self.entered.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.entered.__exit__(kind, error, trace)

    def hand_over(self, batch: Tree) -> None:
        """Makes the computation wait for the copies so far, and keeps their memory from reuse before it is done."""
        computing = self.module.current_stream(self.device)
        computing.wait_stream(self.stream)
        for _, leaf in leaves(batch):
            if isinstance(leaf, torch.Tensor):
                leaf.record_stream(computing)
