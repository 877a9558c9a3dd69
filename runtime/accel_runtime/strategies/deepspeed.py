"""DeepSpeed: its engine shards the optimizer, the gradients and the weights (ZeRO 1, 2, 3) of one model."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from math import ceil
from typing import Any, Self

import torch.distributed as dist
from torch import Size, Tensor
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from accel_runtime.errors import ConfigError, UsageError
from accel_runtime.handlers import pick
from accel_runtime.options import Options
from accel_runtime.strategies import Bundle, Strategy, bare
from accel_runtime.strategies.deepspeed_config import Config, Run, engine_config, written_in
from accel_runtime.strategies.deepspeed_engine import EngineOptimizer, check_optimizer, start_engine
from accel_runtime.strategies.deepspeed_model import GatheredMethod
from accel_runtime.strategies.deepspeed_plugin import DeepSpeedPlugin
from accel_runtime.strategies.deepspeed_sections import optimizer_in, scheduler_in
from accel_runtime.strategies.deepspeed_state import whole_optimizer, whole_weights

LIVING: weakref.WeakSet[DeepSpeed] = weakref.WeakSet()


class DeepSpeed(Strategy):
    name = "deepspeed"
    exchanges_gradients = True
    needs_group = True
    weights_reset_optimizers = True
    saves_in_windows = False
    guards_steps = True
    precisions: Mapping[str, str] = {
        "no": "accel_runtime.precision.engine:EngineFull",
        "bf16": "accel_runtime.precision.engine:EngineBf16",
        "fp16": "accel_runtime.precision.engine:EngineFp16",
        "fp8": "accel_runtime.precision.engine:EngineFp8",
        "fp8-emulated": "accel_runtime.precision.engine:EngineEmulatedFp8",
    }

    def __init__(self, options: Options, plugin: DeepSpeedPlugin) -> None:
        self.options = options
        self.deepspeed_plugin = plugin
        self.written = written_in(plugin.hf_ds_config)
        self.optimizer: EngineOptimizer | None = None  # the one in training, which knows its engine
        self.built: dict[str, Any] = {}  # what was built from the sections of the file

    @classmethod
    def made_for(cls, options: Options, settings: tuple[object, ...]) -> Self:
        plugin = pick(settings, DeepSpeedPlugin, DeepSpeedPlugin())
        if options.deepspeed_config is not None and plugin.hf_ds_config is not None:
            raise ConfigError(
                f"the script passes DeepSpeedPlugin(hf_ds_config=...) and deepspeed_config is {options.deepspeed_config}; "
                "keep one of them"
            )
        return cls(options, replace(plugin, hf_ds_config=plugin.hf_ds_config or options.deepspeed_config))

    def prepare(self, bundle: Bundle, evaluation: bool = False) -> Bundle:
        if evaluation or not bundle.optimizers:
            return bundle
        if self.optimizer is not None or len(bundle.optimizers) > 1:
            raise UsageError(
                "DeepSpeed's engine trains one model with one optimizer; train several, as in a GAN, with ddp or fsdp"
            )
        (optimizer,) = bundle.optimizers
        check_optimizer(optimizer)
        trained = self._started(_trained_by(optimizer, bundle.models), optimizer, bundle)
        return Bundle(bundle.models, (trained,), bundle.loaders)  # type: ignore[arg-type]

    def optimizer_of_file(self, params: Iterable[Any], **auto: Any) -> Optimizer:
        """What the file describes, with values for those that it leaves open."""
        self.built["optimizer"] = optimizer_in(self.written, params, auto)
        return self.built["optimizer"]  # type: ignore[no-any-return]

    def scheduler_of_file(self, optimizer: Optimizer, make: Callable[[Optimizer], Any] | None, **auto: Any) -> Any:
        """The same; `total_num_steps` counts the batches of all processes, the schedule the steps of the engine."""
        if auto.get("total_num_steps") is not None and not self.options.split_batches:
            auto["total_num_steps"] = ceil(auto["total_num_steps"] / dist.get_world_size())
        auto = {"warmup_min_lr": 0, "warmup_max_lr": optimizer.param_groups[0]["lr"], **auto}
        self.built["scheduler"] = make(optimizer) if make else scheduler_in(self.written, optimizer, auto)
        return self.built["scheduler"]

    def counts_steps(self, scheduler: Any) -> bool:
        return scheduler is self.built.get("scheduler")

    def _started(self, model: Module, optimizer: Optimizer, bundle: Bundle) -> EngineOptimizer:
        _warn_of_frozen(optimizer)
        self._warn_of_others()
        groups = tuple(tuple(group["params"]) for group in optimizer.param_groups if group["params"])
        engine = start_engine(bare(model), optimizer, engine_config(self.written, self._run(bundle, optimizer)))
        self.optimizer = EngineOptimizer(optimizer, engine, groups)
        return self.optimizer

    def _warn_of_others(self) -> None:
        others = [other for other in LIVING if other is not self and other.optimizer is not None]
        LIVING.add(self)
        if others:
            warnings.warn(
                "another Accelerator of this process has an engine of DeepSpeed: a loss that runs through the models of "
                "both leaves gradients in the wrong one; train such models with ddp or fsdp, and call "
                "accelerator.free_memory() after a training that has ended",
                stacklevel=6,
            )

    def _run(self, bundle: Bundle, optimizer: Optimizer) -> Run:
        options, processes = self.options, dist.get_world_size()
        batches = [loader.batch_size for loader in bundle.loaders if loader.batch_size is not None]
        share = processes if options.split_batches else 1
        return Run(
            processes=processes,
            accumulation=options.gradient_accumulation_steps,
            precision=options.mixed_precision,
            micro_batch=batches[0] // share if batches else None,
            stage=options.zero_stage,
            clipping=options.gradient_clipping,
            offload=_offload(self.deepspeed_plugin),
            cpu_offload=options.cpu_offload,
            built=frozenset(name for name, thing in self.built.items() if name != "optimizer" or thing is optimizer),
        )

    def compiled(self, model: Module, settings: dict[str, Any]) -> Module:
        if self._in_shards(model):
            raise UsageError(
                "torch.compile and ZeRO 3 do not go together: weights are gathered by hooks that compiled code does not "
                "run; use ZeRO 2, or fsdp"
            )
        return super().compiled(model, settings)

    def _in_shards(self, model: Module) -> bool:
        engine = self.optimizer and self.optimizer.engine
        return engine is not None and engine.module is model and engine.zero_optimization_stage() == 3

    def forget(self) -> None:
        self.optimizer = None
        self.built.clear()

    def backward(self, scaled: Callable[..., None] | None) -> Callable[..., None]:
        def backward(loss: Tensor, **kwargs: Any) -> None:
            self._training("backward()").backward(loss, **kwargs)

        return backward

    def unwrap(self, model: Module) -> Module:
        return bare(model)

    def defer(self, models: tuple[Module, ...], deferred: bool) -> None:
        self._training("accumulate()").engine.set_gradient_accumulation_boundary(not deferred)

    def sync_next_backward(self, model: Module) -> None:
        self.defer((model,), False)

    def register_forward_method(self, model: Module, name: str) -> None:
        inner = bare(model)
        # A part of the model gathers its weights by itself.
        if self._in_shards(inner) and not isinstance(getattr(inner, name), (Module, GatheredMethod)):
            vars(inner)[name] = GatheredMethod(inner, name)

    def join(self, models: list[Module]) -> AbstractContextManager[Any]:
        raise UsageError(
            "join_uneven_inputs is not possible under DeepSpeed, whose processes exchange at every step; keep "
            "even_batches=True, which fills the last round up"
        )

    def clip_norm(self, parameters: Iterable[Tensor] | Tensor, max_norm: float, norm_type: float) -> Tensor:
        """The norm that the gradients have now; the engine clips to `max_norm` when it steps."""
        training = self._training("clip_grad_norm_()")
        self._check_clipping(training, parameters, max_norm, norm_type)
        return training.clip(max_norm)

    def _check_clipping(
        self, training: EngineOptimizer, parameters: Iterable[Tensor] | Tensor, max_norm: float, norm_type: float
    ) -> None:
        given = {id(weight) for weight in ([parameters] if isinstance(parameters, Tensor) else parameters)}
        trained = [weight for group in training.weights for weight in group if weight.requires_grad]
        missing = [weight for weight in trained if id(weight) not in given]
        if missing or norm_type != 2:
            raise UsageError(
                "DeepSpeed's engine clips all weights of the optimizer together by their 2-norm; pass "
                f"model.parameters() and norm_type=2 (got norm_type={norm_type}, and {len(missing)} weights are missing)"
            )
        configured = training.engine.gradient_clipping()
        if configured and configured != max_norm:
            raise ConfigError(
                f'the script clips to {max_norm} and gradient_clipping is {configured}; write "auto" there, or make '
                "them equal"
            )
        if not training.pending:
            raise UsageError(
                "clip_grad_norm_() found no gradients of a whole window; call it after backward(), where "
                "accelerator.sync_gradients is true"
            )

    def clip_value(self, parameters: Iterable[Tensor] | Tensor, clip_value: float) -> None:
        raise UsageError("DeepSpeed's engine clips by norm only; use accelerator.clip_grad_norm_")

    def state_dict(self, model: Module) -> dict[str, Any]:
        return whole_weights(model)

    def shapes(self, model: Module) -> dict[str, Size | None]:
        state = self.unwrap(model).state_dict(keep_vars=True)
        return {key: getattr(value, "ds_shape", getattr(value, "shape", None)) for key, value in state.items()}

    def group_sizes(self, optimizer: Optimizer) -> list[int]:
        groups = self._training("load_state()").weights
        return [len(group) for group in groups]

    def kept_state(self, model: Module) -> dict[str, Any]:
        if self.optimizer is not None and self.optimizer.holds_gradients:
            raise UsageError(
                "save_state() came in the middle of an accumulation window, whose gradients are inside DeepSpeed's engine; "
                "save after optimizer.step(), where accelerator.sync_gradients is true"
            )
        return whole_weights(self.unwrap(model), keep=_writes())

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        training = self._training("save_state()")
        return whole_optimizer(training.engine, training.behind, training.weights, keep=_writes())

    def _training(self, what: str) -> EngineOptimizer:
        if self.optimizer is None:
            raise UsageError(
                f"{what} needs DeepSpeed's engine, and none was started; pass the model and its optimizer to prepare() "
                "in one call"
            )
        return self.optimizer


def _writes() -> bool:
    """Whether this process may write a checkpoint: one on each machine, so that only it has all in its memory."""
    return dist.get_node_local_rank(dist.get_rank()) == 0


def _warn_of_frozen(optimizer: Optimizer) -> None:
    frozen = sum(not weight.requires_grad for group in optimizer.param_groups for weight in group["params"])
    if frozen:
        warnings.warn(
            f"{frozen} weights of {type(optimizer).__name__} are frozen, and DeepSpeed's engine will not train them even if "
            "they are unfrozen later; unfreeze them before prepare(), or train with ddp or fsdp",
            stacklevel=7,
        )


def _offload(plugin: DeepSpeedPlugin) -> dict[str, Config]:
    """The sections of the engine's configuration about what rests elsewhere."""
    wanted = {
        "offload_optimizer": (plugin.offload_optimizer_device, plugin.offload_optimizer_nvme_path),
        "offload_param": (plugin.offload_param_device, plugin.offload_param_nvme_path),
    }
    return {
        section: {"device": device, **({"nvme_path": path} if path else {})}
        for section, (device, path) in wanted.items()
        if device is not None
    }


def _trained_by(optimizer: Optimizer, models: tuple[Module, ...]) -> Module:
    """The model whose weights the optimizer steps."""
    stepped = [weight for group in optimizer.param_groups for weight in group["params"]]
    if plain := [weight for weight in stepped if not isinstance(weight, Parameter)]:
        raise UsageError(
            f"DeepSpeed's engine trains the weights of one model, and this {type(optimizer).__name__} steps a plain tensor of "
            f"shape {tuple(plain[0].shape)}; make it an nn.Parameter of the model, or train with ddp"
        )
    weights = set(map(id, stepped))
    owners = [model for model in models if any(id(weight) in weights for weight in model.parameters())]
    if len(owners) != 1:
        raise UsageError(
            f"DeepSpeed's engine trains one model with one optimizer, and this {type(optimizer).__name__} steps weights of "
            f"{len(owners)} of the models in this call of prepare(); pass it together with its one model"
        )
    return owners[0]
