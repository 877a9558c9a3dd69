"""A checkpoint as it was read, whatever its format, and whether it fits this run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Size, Tensor
from torch.optim import Optimizer

from accel_runtime.checkpoint.encoding import State
from accel_runtime.errors import CheckpointError
from accel_runtime.strategies import OwnStates


@dataclass(frozen=True, slots=True)
class Kept:
    """One state with the file it came from; `kind` is the class it was taken from, where that is known."""

    path: Path
    state: State
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """`random` and `progress` are this process's own, `own_states` the strategy's; None: the checkpoint has none."""

    folder: Path
    processes: int
    models: list[Kept]
    optimizers: list[Kept]
    schedulers: list[Kept]
    objects: list[Kept]
    scaler: Kept | None = None
    trackers: Kept | None = None
    random: dict[str, State] | None = None
    progress: dict[str, State] | None = None
    own_states: OwnStates | None = None
    epoch: int = 0
    step: int = 0
    batch: int = 0


def check_number(loaded: Loaded, found: Sequence[Kept], wanted: int, kind: str, how: str) -> None:
    if len(found) != wanted:
        raise CheckpointError(
            f"{loaded.folder} holds {len(found)} {kind}(s) and this run has {wanted}; {how} the same ones in the same "
            "order as when it was saved"
        )


def check_model(kept: Kept, name: str, own: Mapping[str, Size | None]) -> None:
    """Refuses weights of another model, with the first difference."""
    missing, foreign = own.keys() - kept.state.keys(), kept.state.keys() - own.keys()
    if missing or foreign:
        seen = [f"lacks {min(missing)}"] if missing else []
        seen += [f"has {min(foreign)}"] if foreign else []
        others = len(missing) + len(foreign) - len(seen)
        more = f" and {others} other differences" if others else ""
        raise CheckpointError(f"{kept.path} is not of this {name}: it {' and '.join(seen)}{more}; nothing was changed")
    for key, shape in own.items():
        if shape is None:
            continue
        if not isinstance(value := kept.state[key], Tensor):
            raise CheckpointError(f"{kept.path} is not of this {name}: {key} is not a tensor; nothing was changed")
        if (saved := value.shape) != shape:
            raise CheckpointError(
                f"{kept.path} is not of this {name}: {key} was {tuple(saved)} and is {tuple(shape)}; "
                "nothing was changed"
            )


def check_optimizer(kept: Kept, optimizer: Optimizer, own: list[int]) -> None:
    check_kind(kept, optimizer)
    try:
        saved = [len(group["params"]) for group in kept.state["param_groups"]]
    except (TypeError, KeyError) as error:
        raise CheckpointError(f"{kept.path} is not the state of an optimizer; nothing was changed") from error
    if saved != own:
        raise CheckpointError(
            f"{kept.path} is of an optimizer with groups of {saved} weights and this one has {own}; nothing was changed"
        )


def check_kind(kept: Kept, thing: Any) -> None:
    if kept.kind is not None and kept.kind != (own := thing.__class__.__name__):
        raise CheckpointError(f"{kept.path} is of {kept.kind} and this run has {own}; nothing was changed")
