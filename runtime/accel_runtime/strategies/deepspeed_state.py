"""The state of a training under ZeRO, whole: shards are gathered one weight at a time, and sharded again.

So a checkpoint is what one process would have saved: any number of processes, and any other strategy, can load it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.functional import pad

Groups = tuple[tuple[Parameter, ...], ...]
# Any: the engine, its optimizer and what they add to weights have no types.
Engine = Any
MASTER = "master_weight"  # beside the state of an optimizer, where the weights themselves are narrow


def whole_weights(module: Module, keep: bool = True) -> dict[str, Any]:
    """The state of the model, under ZeRO 3 on the CPU; every process must ask, but not each needs to keep it."""
    gathered = ((key, _whole(value, keep)) for key, value in module.state_dict(keep_vars=True).items())
    return {key: value for key, value in gathered if keep}


def load_weight(weight: Parameter, value: Tensor) -> None:
    """Puts a whole value where the engine has the weight, on every process the same: its shards, and those in full precision."""
    if hasattr(weight, "ds_id"):
        with _zero().GatheredParameters([weight], modifier_rank=0):
            weight.data.copy_(value)
    if weight.requires_grad:
        _share_out(weight, value, None)


def take_weights(engine: Engine) -> None:
    """Takes over what was written into weights since the last step: it is copies of them that the engine steps.

    Under ZeRO 3 the weights themselves are not here to be written to, but by `load_weight`.
    """
    if engine.zero_optimization_stage() == 3:
        return
    zero = engine.optimizer
    for number, master in enumerate(zero.single_partition_of_fp32_groups):
        rank = dist.get_rank(zero.real_dp_process_group[number])
        weights = zero.parallel_partitioned_bit16_groups[number][rank].detach().to(master.device)
        # Narrow weights are rounded copies; where nobody wrote, the exact values stay.
        written = master.detach().to(weights.dtype) != weights
        if written.any():
            master.data[written] = weights[written].to(master.dtype)
        memory = zero.bit16_groups_flat[number].untyped_storage().data_ptr()
        for weight in zero.bit16_groups[number]:
            if weight.untyped_storage().data_ptr() != memory:  # another tensor was set as its data
                _share_out(weight, weight, None)


def whole_optimizer(engine: Engine, optimizer: Any, groups: Groups, keep: bool = True) -> dict[str, Any]:
    """The state of the optimizer in the form of torch, by the number of the weight; who keeps it is as above."""
    take_weights(engine)
    states: dict[int, dict[str, Any]] = {}
    for number, (weight, flat) in enumerate(_shards(engine, groups)):
        kept = optimizer.state.get(flat, {}) if weight.requires_grad else {}
        if kept:
            _link(weight, flat, optimizer.state)
            whole = {key: _gathered(weight, flat, key, value) for key, value in kept.items()}
            if weight.dtype != torch.float32:
                whole[MASTER] = _api().safe_get_full_fp32_param(weight).cpu()
            if keep:
                states[number] = whole
    return {"state": states, "param_groups": list(_numbered(optimizer, groups))}


def load_optimizer(engine: Engine, optimizer: Any, groups: Groups, state: dict[str, Any]) -> None:
    """Shares out a state that one process could have saved."""
    shards = [
        (weight, flat, state["state"].get(number, {})) for number, (weight, flat) in enumerate(_shards(engine, groups))
    ]
    for weight, flat, saved in shards:
        for key, value in saved.items():
            if key != MASTER:
                _make_room(optimizer.state[flat], key, value, weight, flat)
    for weight, flat, saved in shards:
        _link(weight, flat, optimizer.state)
        for key, value in saved.items():
            if key == MASTER:
                _share_out(weight, value, None)
            elif _is_sharded(optimizer.state[flat][key], flat):
                _share_out(weight, value, key)
    for group, kept in zip(optimizer.param_groups, state["param_groups"]):
        group.update({key: value for key, value in kept.items() if key != "params"})


def _shards(engine: Engine, groups: Groups) -> Iterator[tuple[Parameter, Any]]:
    """Each weight with the flat tensor in which this process keeps its share of it."""
    zero = engine.optimizer
    for number, group in enumerate(groups):
        for weight in group:
            if not weight.requires_grad:
                yield weight, None
            elif hasattr(weight, "ds_id"):
                place, *_ = zero.grad_position[zero.get_param_id(weight)]
                yield weight, zero.fp32_partitioned_groups_flat[place]
            else:
                yield weight, zero.single_partition_of_fp32_groups[number]


def _link(weight: Any, flat: Tensor | None, states: Any) -> None:
    """Tells a weight of stages 1 and 2 where its share is; the engine does so only for the group that it steps first."""
    if getattr(weight, "_hp_mapping", None) is not None and flat in states:
        weight._hp_mapping.set_optim_state_fragment(flat, states[flat])


def _numbered(optimizer: Any, groups: Groups) -> Iterator[dict[str, Any]]:
    first = 0
    for group, weights in zip(optimizer.param_groups, groups):
        settings = {key: value for key, value in group.items() if key != "params"}
        yield {**settings, "params": list(range(first, first + len(weights)))}
        first += len(weights)


def _gathered(weight: Parameter, flat: Tensor, key: str, value: Any) -> Any:
    if _is_sharded(value, flat):
        return _api().safe_get_full_optimizer_state(weight, key).cpu()
    return value.clone() if isinstance(value, Tensor) else value


def _is_sharded(value: Any, flat: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape == flat.shape


def _make_room(state: dict[str, Any], key: str, value: Any, weight: Parameter, flat: Tensor) -> None:
    """A fresh optimizer has no state yet; numbers, such as that of the step, are the same for all shards."""
    shape = getattr(weight, "ds_shape", weight.shape)
    if isinstance(value, Tensor) and value.dim() and value.shape == shape:
        state.setdefault(key, torch.zeros_like(flat, requires_grad=False))
    else:
        state[key] = value.clone() if isinstance(value, Tensor) else value


def _share_out(weight: Any, value: Tensor, key: str | None) -> None:
    """This process's share of a value: of the optimizer's state, or without a key of the weight in full precision."""
    value = value.detach().to(weight.device, torch.float32)
    if hasattr(weight, "ds_id"):
        weight._z3_optimizer.set_local_hp_param(_own_share(weight, value), weight, key)
    elif key is None:
        _api().safe_set_full_fp32_param(weight, value)
    else:
        _api().safe_set_full_optimizer_state(weight, value, key)


def _own_share(weight: Any, value: Tensor) -> Tensor:
    size = weight.ds_tensor.numel()
    rank = dist.get_rank(weight.ds_process_group)
    share = value.flatten()[size * rank : size * (rank + 1)]
    # Shares are equally long; the last one is filled up.
    return pad(share, (0, size - share.numel()))


def _whole(value: Any, keep: bool) -> Any:
    if not hasattr(value, "ds_id"):
        return value.detach() if isinstance(value, Tensor) else value
    with _zero().GatheredParameters([value]):
        return value.detach().to("cpu", copy=True) if keep else None


def _api() -> Any:
    import deepspeed.utils

    return deepspeed.utils


def _zero() -> Any:
    import deepspeed

    return deepspeed.zero
