"""Prepared loaders whose place in the epoch scripts save and load by themselves, as they do with torchdata's."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import msgspec
from torch.utils.data import DataLoader

from accel_runtime.data.loader import PreparedLoader
from accel_runtime.data.progress import Position
from accel_runtime.data.resumption import Resuming
from accel_runtime.data.unresumable import unresumable_reason


class StatefulLoader(PreparedLoader):
    """Of `DataLoaderConfiguration(use_stateful_dataloader=True)`; `save_state` keeps its place too.

    >>> state = loader.state_dict()
    >>> loader.load_state_dict(state)
    >>> for batch in loader: ...  # the rest of the epoch
    """

    def state_dict(self) -> dict[str, Any]:
        """Where the pass under way stands; between passes, how the next one begins."""
        if (reason := unresumable_reason(self.loader_progress)) is not None:
            warnings.warn(reason.replace("save_state()", "state_dict()"), stacklevel=2)
        return {"processes": self.settings.collectives.world.size, "position": asdict(self.position())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Makes the next pass go on there; generators that the loader does not own stay where they are."""
        then, now = state_dict["processes"], self.settings.collectives.world.size
        resuming = Resuming(then, then == now, stateful=True, restore=lambda: None)
        self.resume(msgspec.convert(state_dict["position"], Position), resuming)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Scripts ask torchdata's class whether a loader can be saved; a loader of another class is that first."""
        kind = type(self.behind)
        return _torchdatas() or kind if kind is DataLoader else kind


@cache
def _torchdatas() -> type | None:
    if find_spec("torchdata") is None or find_spec("torchdata.stateful_dataloader") is None:
        return None
    kind: type = import_module("torchdata.stateful_dataloader").StatefulDataLoader
    return kind
