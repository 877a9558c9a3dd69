"""The public face: an Accelerator, whose short methods delegate to what was chosen for this run."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import DataParallel, Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, IterableDataset

from accel_runtime.accumulation import Accumulation, Block, GradientAccumulationPlugin
from accel_runtime.announcement import nothing_trains_together, own_statistics, run_in_a_line, say_once, unused_devices
from accel_runtime.arguments import refuse_unsupported
from accel_runtime.bundle import Choices, Prepared
from accel_runtime.checkpoint import Checkpoints, Resumed
from accel_runtime.checkpoint.run_state import RunState
from accel_runtime.config_file import config_files
from accel_runtime.configuration import DataLoaderConfiguration, ProjectConfiguration, TorchDynamoPlugin
from accel_runtime.data.iteration import Iterations
from accel_runtime.data.loader import LoaderSettings, PreparedLoader
from accel_runtime.data.skipping import skip_first_batches
from accel_runtime.errors import ConfigError, UsageError
from accel_runtime.handlers import AutocastKwargs, Handler, check_handlers, pick
from accel_runtime.latest import numbered, remember
from accel_runtime.machine import this_machine
from accel_runtime.metrics import gather_samples, sum_of_batches
from accel_runtime.nan_policy import policy_of
from accel_runtime.optimizer import PreparedOptimizer
from accel_runtime.options import Options, options_from
from accel_runtime.peer_environment import peer_layer, unread_of_peer
from accel_runtime.precision.autocast import unwrap_forward
from accel_runtime.processes import Processes
from accel_runtime.profiling import ProfileKwargs, profiled
from accel_runtime.recording import Recording
from accel_runtime.registry import Hook, Registry, Removable
from accel_runtime.resolve import asked_device, session_from
from accel_runtime.run_properties import RunProperties
from accel_runtime.saving import save_atomically, save_tensors
from accel_runtime.scheduler import PreparedScheduler
from accel_runtime.stopping import Stopping
from accel_runtime.strategies import given
from accel_runtime.strategies.deepspeed_plugin import DeepSpeedPlugin
from accel_runtime.strategies.fsdp_plugin import FullyShardedDataParallelPlugin
from accel_runtime.tracking import Choice, Trackers
from accel_runtime.tree import Tree
from accel_runtime.watchdog import PATIENCE, Watchdog
from accel_runtime.weights import save_weights
from accel_runtime.world import leave_place

Parameters = Iterable[Tensor] | Tensor


class Accelerator(Processes, RunProperties, Recording):
    """Runs one training script on one process or on many.

    >>> accelerator = Accelerator(cpu=True)
    >>> model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    >>> for inputs, targets in loader:
    ...     loss = loss_of(model(inputs), targets)
    ...     accelerator.backward(loss)
    ...     optimizer.step()
    ...     optimizer.zero_grad()
    """

    def __init__(
        self,
        device_placement: bool = True,
        split_batches: bool | None = None,
        mixed_precision: str | None = None,
        gradient_accumulation_steps: int | None = None,
        cpu: bool | None = None,
        dataloader_config: DataLoaderConfiguration | None = None,
        log_with: Choice | Iterable[Choice] | None = None,
        project_dir: str | Path | None = None,
        project_config: ProjectConfiguration | None = None,
        gradient_accumulation_plugin: GradientAccumulationPlugin | None = None,
        step_scheduler_with_optimizer: bool = True,
        kwargs_handlers: Iterable[Handler] | None = None,
        dynamo_backend: str | None = None,
        dynamo_plugin: TorchDynamoPlugin | None = None,
        deepspeed_plugin: DeepSpeedPlugin | None = None,
        autocast_forward: bool = True,
        schedule_skipped_steps: bool = False,
        matmul_precision: str | None = None,
        nan_policy: str | None = None,
        hang_timeout: float = PATIENCE,
        fsdp_plugin: FullyShardedDataParallelPlugin | None = None,
        device: torch.device | str | int | None = None,
        **unsupported: Any,
    ) -> None:
        refuse_unsupported(unsupported)
        self._dataloader_config = dataloader_config or DataLoaderConfiguration()
        asked = asked_device(device, cpu)
        arguments = _agreed(
            {
                "split_batches": _one_of("split_batches", split_batches, self.dataloader_config.split_batches),
                "mixed_precision": mixed_precision,
                "matmul_precision": matmul_precision,
                "gradient_accumulation_steps": _steps(gradient_accumulation_steps, gradient_accumulation_plugin),
                "cpu": cpu or (None if asked is None else asked.type == "cpu"),
                "dynamo_backend": dynamo_backend,
                "strategy": "fsdp" if fsdp_plugin else None,
            },
            deepspeed_plugin.options() if deepspeed_plugin else {},
        )
        lower = [peer_layer(os.environ), *(file.layer() for file in config_files(os.environ))]
        options = options_from(os.environ, arguments, lower)
        self._handlers = check_handlers(kwargs_handlers or ())
        self._session = session_from(options, self._handlers, plugins=(fsdp_plugin, deepspeed_plugin), asked=asked)
        session = self._session
        super().__init__(session.world, session.device, session.collectives, session.strategy.name)
        self.device_placement = device_placement
        self._iterations = Iterations()
        self._accumulation = Accumulation(
            _accumulation_plugin(options, gradient_accumulation_steps, gradient_accumulation_plugin),
            self._iterations,
            self._session.strategy.defer if self._session.strategy.exchanges_gradients else None,
        )
        self._prepared = Prepared(
            self._session,
            self._accumulation,
            self._loader_settings(options.split_batches),
            Choices(
                autocast_forward,
                step_scheduler_with_optimizer,
                schedule_skipped_steps,
                _dynamo(options, dynamo_plugin),
                policy_of(
                    nan_policy,
                    self._session.collectives.any,
                    self._session.precision.scales,
                    self._session.strategy.guards_steps,
                ),
            ),
        )
        self.project_configuration = project_config or ProjectConfiguration()
        if project_dir is not None and self.project_dir is None:
            self.project_configuration.set_directories(project_dir)
        self._trackers = Trackers(log_with, active=self.is_main_process, has_folder=self.logging_dir is not None)
        self._registry = Registry()
        self._stopping = Stopping()
        self._watchdog = Watchdog(self._world, self._iterations.indices, hang_timeout)
        if self.use_distributed:
            self._watchdog.start()
        state = RunState(
            self._session, self._prepared, self._registry, self._accumulation, self._iterations, self._trackers
        )
        self._checkpoints = Checkpoints(state, self.project_configuration)
        # Asked once, for it is needed at every step; None is the loss's own.
        self._backward = self._session.strategy.backward(self._session.precision.backward)
        self._unannounced = self.use_distributed and self.is_main_process
        if self._unannounced:
            self._backward = self._first_backward(self._backward)
        if self.is_main_process:
            lines = [unused_devices(session, this_machine(os.environ)), *unread_of_peer(os.environ)]
            for line in filter(None, lines):
                say_once(line)
        self._number = remember(self)

    def __repr__(self) -> str:
        return f"{super().__repr__()}\nMixed precision type: {self.mixed_precision}\n"

    @property
    def dataloader_config(self) -> DataLoaderConfiguration:
        """How loaders are prepared; another one holds for those that are prepared from then on."""
        return self._dataloader_config

    @dataloader_config.setter
    def dataloader_config(self, config: DataLoaderConfiguration) -> None:
        split = self._session.options.split_batches if config.split_batches is None else config.split_batches
        self._dataloader_config = config
        self._prepared.loader_settings = self._loader_settings(split)

    def _loader_settings(self, split: bool) -> LoaderSettings:
        config = self.dataloader_config
        return LoaderSettings(
            collectives=self._session.collectives,
            iterations=self._iterations,
            split=split,
            even=config.even_batches,
            dispatch=config.dispatch_batches,
            seedable=config.use_seedable_sampler,
            seed=config.data_seed,
            stateful=config.use_stateful_dataloader,
            feed=self._session.hardware.feed(self.device, config.non_blocking) if self.device_placement else None,
        )

    # Preparing

    def prepare(self, *objects: Any, device_placement: list[bool] | None = None) -> Any:
        """Models, optimizers, loaders and schedulers made ready for this run, in the order given."""
        prepared = self._prepared.prepare(objects, device_placement or [self.device_placement] * len(objects))
        if self._unannounced and self._prepared.models:
            self._unannounced = False
            say_once(
                run_in_a_line(
                    self._session,
                    self._prepared.loaders,
                    self.gradient_accumulation_steps,
                    this_machine(os.environ).cores,
                )
            )
        if self.use_distributed and self.is_main_process:
            said = own_statistics(each for each in prepared if isinstance(each, Module))
            if said is not None:
                say_once(said)
        return prepared[0] if len(prepared) == 1 else tuple(prepared)

    def prepare_model(
        self, model: Module, device_placement: bool | None = None, evaluation_mode: bool = False
    ) -> Module:
        """One model; in `evaluation_mode` its gradients are never exchanged."""
        placed = self.device_placement if device_placement is None else device_placement
        (prepared,) = self._prepared.prepare([model], [placed], evaluation_mode)
        return prepared  # type: ignore[no-any-return]

    def prepare_data_loader(self, data_loader: DataLoader[Any], device_placement: bool | None = None) -> Any:
        """`prepare` for one loader."""
        placed = self.device_placement if device_placement is None else device_placement
        return self.prepare(data_loader, device_placement=[placed])

    def prepare_optimizer(self, optimizer: Optimizer, device_placement: bool | None = None) -> PreparedOptimizer:
        """`prepare` for one optimizer."""
        return self.prepare(optimizer)  # type: ignore[no-any-return]

    def prepare_scheduler(self, scheduler: LRScheduler) -> PreparedScheduler:
        """`prepare` for one scheduler."""
        return self.prepare(scheduler)  # type: ignore[no-any-return]

    def register_forward_method(self, model: Module, method: str) -> None:
        """Losses made by this method of a prepared model train it as those of its forward do, on many processes too."""
        if not callable(getattr(model, method, None)):
            raise UsageError(f"{type(self.unwrap_model(model)).__name__} has no method {method!r} to register")
        self._session.strategy.register_forward_method(model, method)

    def skip_first_batches(self, dataloader: Any, num_batches: int = 0) -> Any:
        """The loader without its first batches, for one epoch that goes on where another stopped."""
        return skip_first_batches(dataloader, num_batches)

    def whole_batches(self, dataloader: Any) -> Any:
        """A loader with every batch as the script made it and on one process: for figures of a batch.

        The batches of one that is not prepared stay where they are, and no state has its place.
        """
        if not isinstance(dataloader, PreparedLoader):
            if self.num_processes == 1:
                return dataloader
            dataloader = self._prepared.beside(dataloader)
        return dataloader.whole_batches()

    def free_memory(self, *objects: Any) -> list[None]:
        """Forgets what was prepared; assign the result to the objects' names, and their memory can go."""
        self._prepared.forget()
        self._accumulation.blocks.clear()
        gc.collect()
        self._session.hardware.empty_cache()
        return [None] * len(objects)

    clear = free_memory

    # Training

    def backward(self, loss: Tensor, **kwargs: Any) -> None:
        """Gradients of the loss, weighed by its share in the accumulation window."""
        self._iterations.work += 1
        self._iterations.due = True
        if self._accumulation.divisor != 1:
            if not self._accumulation.blocks:
                self._accumulation.warn_unused()
            loss = loss / self._accumulation.divisor
        if self._backward is None:
            loss.backward(**kwargs)  # type: ignore[no-untyped-call]
        else:
            self._backward(loss, **kwargs)

    def _first_backward(self, then: Callable[..., None] | None) -> Callable[..., None]:
        """Looks once whether anything was prepared, and leaves its place to what the strategy does."""

        def backward(loss: Tensor, **kwargs: Any) -> None:
            self._backward = then
            stepped = self._prepared.optimizers and self._session.strategy.exchanges_stepped
            if not stepped and (line := nothing_trains_together(self._prepared.models, self.num_processes)):
                say_once(line)
            loss.backward(**kwargs) if then is None else then(loss, **kwargs)  # type: ignore[no-untyped-call]

        return backward

    def accumulate(self, *models: Module) -> Block:
        """One micro-step: optimizers and schedulers inside it step only when the window is complete."""
        return self._accumulation.blocks[models]

    def no_sync(self, model: Module) -> AbstractContextManager[None]:
        """A region whose gradients stay on this process."""
        return self._session.strategy.no_sync(model)

    @contextmanager
    def trigger_sync_in_backward(self, model: Module) -> Iterator[None]:
        """The next backward exchanges gradients, though its forward ran under `no_sync`."""
        self._session.strategy.sync_next_backward(model)
        yield

    @contextmanager
    def join_uneven_inputs(self, joinables: list[Any], even_batches: bool | None = None) -> Iterator[None]:
        """A region in which processes may run out of batches at different times."""
        before = [(loader, loader.source) for loader in self._prepared.loaders]
        models = [one for one in joinables if isinstance(one, Module)]
        if self.use_distributed and not models:
            warnings.warn(
                "join_uneven_inputs is only supported for multi-GPU or multi-CPU training, and got no model",
                stacklevel=3,
            )
        if even_batches is not None:
            if any(isinstance(loader.dataset, IterableDataset) for loader, _ in before):
                warnings.warn(
                    "even_batches is only supported for map-style datasets; a stream stays as it is", stacklevel=3
                )
            for loader, _ in before:
                loader.__dict__["source"] = loader.with_even_batches(even_batches)
        try:
            with self._session.strategy.join(models):
                yield
        finally:
            for loader, source in before:
                loader.__dict__["source"] = source

    def autocast(self, autocast_handler: AutocastKwargs | None = None) -> AbstractContextManager[Any]:
        """The region in which operations run in this run's precision."""
        return self._session.precision.autocast(autocast_handler)

    def unscale_gradients(self, optimizer: PreparedOptimizer | None = None) -> None:
        """Brings fp16 gradients to their true size before the step does."""
        self._session.precision.unscale((optimizer,) if optimizer else tuple(self._prepared.optimizers))

    def clip_grad_norm_(self, parameters: Parameters, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scales the gradients down to a norm; returns the norm they had."""
        if self._session.precision.scales:
            parameters = self._unscaled(parameters)
        return self._session.strategy.clip_norm(parameters, max_norm, norm_type)

    def clip_grad_value_(self, parameters: Parameters, clip_value: float) -> None:
        """Cuts every gradient off at a value."""
        if self._session.precision.scales:
            parameters = self._unscaled(parameters)
        self._session.strategy.clip_value(parameters, clip_value)

    def _unscaled(self, parameters: Parameters) -> list[Tensor]:
        """The parameters, with their optimizers' gradients at true size; other optimizers may not be due yet."""
        weights = self._session.strategy.weights(parameters)
        self._session.precision.unscale(self._prepared.owners(weights))
        return weights

    def should_stop(self) -> bool:
        """Whether a scheduler has asked any process to end (SIGTERM, SIGUSR1): all hear it at the same step.

        Every process must ask. A script that then ends normally exits with 143. Where a strategy cannot save gradients
        that are being accumulated, the answer is no until their window is complete.
        """
        if not (self._session.strategy.saves_in_windows or self._accumulation.sync):
            return False
        return self._stopping.agreed(self._session.collectives.any)

    def gather_for_metrics(self, input_data: Tree, use_gather_object: bool = False) -> Tree:
        """Results for the current batch from all processes, every sample exactly once."""
        return gather_samples(input_data, self._session.collectives, self._iterations, use_gather_object)

    def sum_for_metrics(self, figure: Any) -> Any:
        """A figure of the current one of `whole_batches`, added up over processes; lists are joined in order."""
        return sum_of_batches(figure, self._session.collectives, self._iterations)

    @contextmanager
    def profile(self, profile_handler: ProfileKwargs | None = None) -> Iterator[torch.profiler.profile]:
        """Torch's profiler over the body; with an `output_trace_dir`, one trace for each process."""
        settings = profile_handler or pick(self._handlers, ProfileKwargs, ProfileKwargs())
        with profiled(settings, self.process_index) as profiler:
            yield profiler

    # Models and files

    def unwrap_model(self, model: Module, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True) -> Module:
        """The model that the user wrote; without the `fp32_wrapper` its forward no longer runs in this precision."""
        inner = self._session.strategy.unwrap(model)
        while isinstance(inner, DataParallel):  # of the script's own
            inner = inner.module
        if not keep_fp32_wrapper:
            unwrap_forward(inner)
        return inner

    def get_state_dict(self, model: Module, unwrap: bool = True) -> dict[str, Any]:
        """The model's whole state on every process, with the keys of what the script gave to `prepare`."""
        return self._session.strategy.state_dict(given(model)) if unwrap else model.state_dict()

    def save(self, obj: Any, f: str | os.PathLike[str], safe_serialization: bool = False) -> None:
        """`torch.save` on the main process; the file is there whole or not at all.

        The others go on at once, so that one process may call it alone: before they read the file, call `wait_for_everyone`.
        """
        self._session.strategy.refuse_parts(obj)
        if self.should_save_model:
            (save_tensors if safe_serialization else save_atomically)(self._session.hardware.portable(obj), Path(f))

    def save_model(
        self,
        model: Module,
        save_directory: str | os.PathLike[str],
        max_shard_size: str | int = "10GB",
        safe_serialization: bool = True,
    ) -> None:
        """The model's weights in a folder, in files of at most `max_shard_size`."""
        state = self._session.strategy.state_dict(self._session.strategy.unwrap(model))
        if any(isinstance(value, Tensor) and value.is_meta for value in state.values()):
            from accel_runtime.large.loading import get_state_dict_offloaded_model

            state = get_state_dict_offloaded_model(self.unwrap_model(model))
        if self.should_save_model:
            save_weights(state, Path(save_directory), max_shard_size, safe_serialization)

    def save_state(
        self,
        output_dir: str | os.PathLike[str] | None = None,
        safe_serialization: bool = True,
        *,
        wait: bool = True,
        allow_pickle: bool = False,
    ) -> str:
        """Everything that the run needs to go on, in a folder that is there whole or not at all; returns the folder.

        Without `output_dir` it is the next number in `project_dir/checkpoints`. Every process must call it. With
        `wait=False` the training goes on while it is written; an error is raised by the next save, load or
        `end_training`.
        """
        if not safe_serialization:
            warnings.warn("checkpoints are always safetensors and JSON; safe_serialization is ignored", stacklevel=2)
        return str(self._checkpoints.save(output_dir, allow_pickle, wait))

    def load_state(
        self,
        input_dir: str | os.PathLike[str] | None = None,
        load_kwargs: Mapping[str, Any] | None = None,
        *,
        missing_ok: bool = False,
        allow_pickle: bool = False,
    ) -> Resumed | None:
        """Goes on where `save_state` was called; without a folder or with "latest", from the newest that is whole.

        >>> resumed = accelerator.load_state("latest", missing_ok=True)
        >>> for epoch in range(resumed.epoch if resumed else 0, epochs): ...
        """
        if load_kwargs:
            warnings.warn("load_state takes no load_kwargs: there is no torch.load to hand them to", stacklevel=2)
        resumed = self._checkpoints.load(input_dir, missing_ok, allow_pickle)
        if resumed is not None and self._world.restarts and self.is_main_process:
            sys.stderr.write(f"accel: resumed from {resumed.folder}, step {resumed.step}\n")
        return resumed

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Objects with `state_dict` and `load_state_dict` that belong to the state of the run."""
        self._registry.add(objects)

    def register_save_state_pre_hook(self, hook: Hook) -> Removable:
        """Calls `hook(models, weights, output_dir)` before a state is saved."""
        return self._registry.before_save.add(hook)

    def register_load_state_pre_hook(self, hook: Hook) -> Removable:
        """Calls `hook(models, input_dir)` before a state is loaded."""
        return self._registry.before_load.add(hook)

    def end_training(self) -> None:
        """Closes the trackers and destroys the process group that this Accelerator initialised."""
        self._checkpoints.background.settle()
        self._watchdog.stop()
        self._trackers.finish()
        if self._session.owns_group and dist.is_initialized():
            # What the device still has to do may need the others.
            self._session.hardware.synchronize()
            dist.destroy_process_group()
            leave_place(os.environ)

    def __deepcopy__(self, memo: dict[int, Any]) -> Accelerator:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle names the Accelerator, and is opened by the process that made it, or by one that it has forked."""
        return numbered, (self._number,)


def _one_of(name: str, argument: bool | None, configured: bool | None) -> bool | None:
    if argument is not None and configured is not None and argument != configured:
        raise ConfigError(f"{name}={argument} and DataLoaderConfiguration({name}={configured}) contradict each other")
    return configured if argument is None else argument


def _agreed(arguments: dict[str, Any], plugin: Mapping[str, Any]) -> dict[str, Any]:
    """What the script says in arguments and in a plugin, once for each key."""
    said = dict(arguments)
    for key, value in plugin.items():
        if value is not None and said.get(key) not in (None, value):
            raise ConfigError(f"the script says {key}={said[key]!r} and {key}={value!r} in a plugin; keep one of them")
        said[key] = said.get(key) if value is None else value
    return said


def _steps(argument: int | None, plugin: GradientAccumulationPlugin | None) -> int | None:
    return plugin.num_steps if plugin is not None and argument in (None, 1) else argument


def _accumulation_plugin(
    options: Options, argument: int | None, plugin: GradientAccumulationPlugin | None
) -> GradientAccumulationPlugin:
    if plugin is not None and argument not in (None, 1):
        raise ConfigError("pass gradient_accumulation_steps or gradient_accumulation_plugin, not both")
    return plugin or GradientAccumulationPlugin(options.gradient_accumulation_steps)


def _dynamo(options: Options, plugin: TorchDynamoPlugin | None) -> TorchDynamoPlugin | None:
    if plugin is not None and options.dynamo_backend is not None:
        raise ConfigError("pass dynamo_backend or dynamo_plugin, not both")
    named = options.dynamo_backend if options.dynamo_backend != "no" else None
    return plugin or (TorchDynamoPlugin(backend=named.lower()) if named else None)
