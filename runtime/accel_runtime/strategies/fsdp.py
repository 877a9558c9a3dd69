"""Fully sharded: each process holds a part of every weight, gradient and optimizer state, and gathers what it runs."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Self, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.nn import Embedding, EmbeddingBag, Module
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from accel_runtime.collectives import Collectives
from accel_runtime.errors import UsageError
from accel_runtime.handlers import pick
from accel_runtime.options import Options
from accel_runtime.shards import in_parts, shard_like, whole_state
from accel_runtime.strategies import Bundle, Strategy, bare, trains
from accel_runtime.strategies.fsdp_blocks import blocks_of
from accel_runtime.strategies.fsdp_by_hand import explain_failures
from accel_runtime.strategies.fsdp_clipping import clip_norm, clip_value
from accel_runtime.strategies.fsdp_copy import Unsharded
from accel_runtime.strategies.fsdp_forward import GatheredForward, change_computation
from accel_runtime.strategies.fsdp_hooks import WeightHooks
from accel_runtime.strategies.fsdp_optimizer import whole_optimizer_state
from accel_runtime.strategies.fsdp_past_forward import exchange_past_forward, own_weights
from accel_runtime.strategies.fsdp_plugin import FullyShardedDataParallelPlugin, Sharding, settled
from accel_runtime.strategies.fsdp_precision import WIDE, policy_for, stays_wide
from accel_runtime.strategies.fsdp_statistics import share_statistics
from accel_runtime.strategies.fsdp_successors import Successors, present
from accel_runtime.strategies.fsdp_weights import filling_for
from accel_runtime.strategies.fsdp_whole import HANDS, whole
from accel_runtime.tree import leaves

Parameters = Iterable[Tensor] | Tensor
Part = TypeVar("Part")
Parts = weakref.WeakKeyDictionary[Module, weakref.WeakSet[Part]]


class Fsdp(Strategy):
    name = "fsdp"
    needs_group = True
    shards = True
    # Micro-steps are exchanged one by one: held back, gradients would lie whole on each process.
    exchanges_gradients = False

    def __init__(self, plugin: FullyShardedDataParallelPlugin, sharding: Sharding) -> None:
        self.fsdp_plugin = plugin
        self.sharding = sharding
        self.successors = Successors()
        # Of each model, weakly: it is the script's.
        self.blocks: Parts[Module] = weakref.WeakKeyDictionary()
        self.units: Parts[FSDPModule] = weakref.WeakKeyDictionary()  # what is gathered at once

    @classmethod
    def made_for(cls, options: Options, settings: tuple[object, ...]) -> Self:
        plugin = pick(settings, FullyShardedDataParallelPlugin, FullyShardedDataParallelPlugin())
        return cls(plugin, settled(plugin, options))

    def place(self, model: Module, device: torch.device) -> None:
        # What will be sharded goes to the device block by block: it may be too large for it as a whole.
        if not trains(model):
            model.to(device)

    def prepare(self, bundle: Bundle, evaluation: bool = False) -> Bundle:
        for model in bundle.models:
            inner = bare(model)
            if evaluation:
                model.to(bundle.device)
            elif trains(inner):
                if not isinstance(inner, FSDPModule):
                    self._shard(inner, bundle.device, bundle.announce)
                self.units[inner] = weakref.WeakSet(one for one in inner.modules() if isinstance(one, FSDPModule))
        self._let_go()
        self.successors.follow(bundle.optimizers)
        for optimizer in bundle.optimizers:
            if hasattr(optimizer, "register_step_pre_hook"):
                optimizer.register_step_pre_hook(self._let_go)
            if hasattr(optimizer, "register_load_state_dict_post_hook"):
                optimizer.register_load_state_dict_post_hook(_keep_own_shards)
        return bundle

    def _shard(self, model: Module, device: torch.device, announce: Callable[[str], None]) -> None:
        self.successors.refuse_shared(model, self.units)
        _refuse_scalars(model)
        _refuse_limited_tables(model)
        explain_failures()
        HANDS.install(announce)
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        home = torch.device("cpu") if self.sharding.offloads else device
        filling = filling_for(model, home, self.sharding.initialise)
        before = {name: weakref.ref(weight) for name, weight in model.named_parameters()}
        blocks = blocks_of(model, self.sharding)
        self.blocks[model] = weakref.WeakSet(blocks)
        policy = policy_for(self.sharding, device)
        apart = [one for one in model.modules() if stays_wide(one)] if policy.param_dtype is not None else []
        # Torch 2.6 has no None for its own choice.
        reshard: dict[str, Any] = (
            {} if self.sharding.reshard is None else {"reshard_after_forward": self.sharding.reshard}
        )
        units = [*apart, *(one for one in blocks if one not in apart), model]
        unsharded = {unit: Unsharded(unit) for unit in units}
        for block in units:
            filling.fill(block)
            fully_shard(
                block,
                mesh=mesh,
                **reshard,
                mp_policy=WIDE if block in apart else policy,
                offload_policy=self._offload(device),
            )
            _name_as(type(block), unsharded[block].kind)
            block.forward = GatheredForward(block)
            vars(block)["_apply"] = functools.partial(_apply_where_it_changes, block, block._apply)
            if block is not model:
                block.register_forward_pre_hook(functools.partial(_begin_with, weakref.ref(model)), prepend=True)
        model.register_forward_pre_hook(_with_present, prepend=True, with_kwargs=True)
        share_statistics(model)
        model.register_forward_hook(self._let_go_after_evaluation)
        if self.sharding.recomputes:
            for block in blocks or [model]:
                change_computation(block, lambda forward: functools.partial(checkpoint, forward, use_reentrant=False))
        model.register_load_state_dict_pre_hook(_take_own_shards)  # type: ignore[no-untyped-call]
        vars(model)["__reduce_ex__"] = functools.partial(_refuse_pickling, type(model).__name__)
        for unit, before_sharding in unsharded.items():
            before_sharding.let_copy(unit, announce)
        for unit in units:
            for owner, name, weight in own_weights(unit):
                vars(weight)["gradient_hooks"] = WeightHooks(unit, owner, name)
        for path, early in before.items():
            if (old := early()) is not None:
                vars(model.get_parameter(path))["gradient_hooks"].take(old)
        self.successors.learn(model, before)

    def _let_go(self, *_: Any) -> None:
        """Lets go of gathered weights: after a step they would be those of before, and the next forward would run them."""
        for model in self.units:
            self._let_go_of(model)

    def _let_go_after_evaluation(self, model: Module, *_: Any) -> None:
        # No backward pass will do it, and until then `parameters()` would yield the gathered ones.
        if not torch.is_grad_enabled():
            self._let_go_of(model)

    def _let_go_of(self, model: Module) -> None:
        for unit in self.units.get(model, ()):
            unit.reshard()

    def keep(self, models: tuple[Module, ...], optimizers: tuple[Optimizer, ...]) -> None:
        for model in set(self.units) - set(map(bare, models)):
            del self.units[model]
            self.blocks.pop(model, None)

    def forget(self) -> None:
        self.successors = Successors()
        self.blocks.clear()
        self.units.clear()

    def _offload(self, device: torch.device) -> OffloadPolicy:
        # On the CPU everything is where offloading would put it.
        return CPUOffloadPolicy() if self.sharding.offloads and device.type != "cpu" else OffloadPolicy()

    def compiled(self, model: Module, settings: dict[str, Any]) -> Module:
        """Block by block and inside of the gathering, which cannot be compiled: the forwards, not the modules."""
        inner = bare(model)
        for block in self.blocks.get(inner) or [inner]:
            change_computation(block, lambda forward: torch.compile(forward, **settings))
        return model

    def backward(self, scaled: Callable[..., None] | None) -> Callable[..., None]:
        def backward(loss: Tensor, **kwargs: Any) -> None:
            loss = whole(loss)
            if scaled is None:
                loss.backward(**kwargs)  # type: ignore[no-untyped-call]
            else:
                scaled(loss, **kwargs)
            exchange_past_forward(self.units)
            if self.successors.strays:
                self.successors.refuse_strays()

        return backward

    def unwrap(self, model: Module) -> Module:
        return bare(model)

    def defer(self, models: tuple[Module, ...], deferred: bool) -> None:
        for model in map(bare, models):
            if isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(not deferred)
            elif trains(model):
                raise UsageError(
                    f"{type(model).__name__} was not prepared, so its gradients would stay apart on each process; "
                    "pass it to prepare() and use what that returns"
                )

    def sync_next_backward(self, model: Module) -> None:
        self.defer((model,), False)

    def register_forward_method(self, model: Module, name: str) -> None:
        register_fsdp_forward_method(bare(model), name)

    def weights(self, parameters: Parameters) -> list[Tensor]:
        self._let_go()
        return [present(weight) for weight in super().weights(parameters)]

    def clip_norm(self, parameters: Parameters, max_norm: float, norm_type: float) -> Tensor:
        return clip_norm(self.weights(parameters), max_norm, norm_type)

    def clip_value(self, parameters: Parameters, value: float) -> None:
        clip_value(self.weights(parameters), value)

    def state_dict(self, model: Module) -> dict[str, Any]:
        return whole_state(model)

    def whole_optimizer_state(self, collectives: Collectives) -> Callable[[Optimizer], dict[str, Any]]:
        return functools.partial(whole_optimizer_state, collectives=collectives)

    def refuse_parts(self, value: Any) -> None:
        path = next((path for path, leaf in leaves(value) if in_parts(present(leaf))), None)
        if path is not None:
            raise UsageError(
                f"accelerator.save got a value{' with ' + path if path else ''} that is sharded, and one process would write "
                "its own part alone; take weights from accelerator.get_state_dict(model), and the state of an "
                "optimizer from the one that prepare() returned"
            )

    def kept_state(self, model: Module) -> dict[str, Any]:
        inner = self.unwrap(model)
        return self.state_dict(inner) if self.sharding.whole_checkpoints else inner.state_dict()

    def join(self, models: list[Module]) -> AbstractContextManager[Any]:
        raise UsageError(
            "join_uneven_inputs cannot work with strategy fsdp: a process without batches would still have to send its "
            "part of the weights; leave it out, and prepared loaders fill up the last round"
        )


def _apply_where_it_changes(
    block: Module, change: Callable[..., Module], function: Callable[[Tensor], Tensor], *args: Any
) -> Module:
    """Leaves weights that are where a script moves them once more: torch would swap each for another."""
    tensors = [*block.parameters(), *block.buffers()]
    return block if all(function(tensor) is tensor for tensor in tensors) else change(function, *args)


def _name_as(sharded: type[Module], original: type[Module]) -> None:
    """Scripts name files and choose layers by `type(model).__name__`; torch calls its class FSDPNet for a Net."""
    sharded.__name__, sharded.__qualname__ = original.__name__, original.__qualname__
    sharded.__module__ = original.__module__


def _refuse_scalars(model: Module) -> None:
    """fully_shard shards the first dimension of each weight."""
    names = [name for name, weight in model.named_parameters() if weight.dim() == 0]
    if names:
        raise UsageError(
            f"{', '.join(names)} of {type(model).__name__} cannot be sharded, having no dimension; write "
            "nn.Parameter(torch.tensor([0.5])) for nn.Parameter(torch.tensor(0.5)), or launch with --strategy ddp"
        )


def _with_present(_: Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a forward is given: `rows = table.weight`, from before `prepare`, is the weight as it is now."""
    return tuple(map(present, given)), {name: present(value) for name, value in named.items()}


def _begin_with(model: weakref.ref[Module], *_: Any) -> None:
    """A block may run before its model does, and torch would take it for the outermost, and refuse the model then."""
    if (outermost := model()) is not None:
        # Any: torch has no public way to say which module is the outermost.
        state: Any = fully_shard.state(outermost)  # type: ignore[attr-defined]
        state._lazy_init()


def _refuse_limited_tables(model: Module) -> None:
    """Their forward writes to the weight, and what is written to a gathered one is lost."""
    for name, module in model.named_modules():
        if isinstance(module, (Embedding, EmbeddingBag)) and module.max_norm is not None:
            raise UsageError(
                f"{name or type(module).__name__} of {type(model).__name__} has max_norm, by which its forward changes its "
                "weight, and that is lost where weights are sharded; leave max_norm out and call "
                "weight.data.renorm_(2, 0, max_norm) after each step, or launch with --strategy ddp"
            )


def _refuse_pickling(kind: str, protocol: object) -> NoReturn:
    raise UsageError(
        f"{kind} is sharded, and a file of it would hold the part of one process; in its place save "
        "accelerator.get_state_dict(model) or copy.deepcopy(model), which are whole: all processes must make them together"
    )


def _take_own_shards(model: Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Lets `load_state_dict` take whole tensors: each process keeps its part."""
    for name, weight in model.state_dict().items():
        if prefix + name in state:
            state[prefix + name] = shard_like(state[prefix + name], weight)


def _keep_own_shards(optimizer: Optimizer) -> None:
    """Lets an optimizer's `load_state_dict` take whole tensors, likewise."""
    for weight, state in optimizer.state.items():
        state.update({name: shard_like(value, weight) for name, value in state.items()})
