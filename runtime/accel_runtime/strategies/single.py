"""One process: models stay what they are."""

from __future__ import annotations

from torch.nn import Module

from accel_runtime.strategies import Bundle, Strategy, bare


class Single(Strategy):
    name = "no"

    def prepare(self, bundle: Bundle, evaluation: bool = False) -> Bundle:
        return bundle

    def unwrap(self, model: Module) -> Module:
        return bare(model)
