"""XLA, which means TPUs: operations are recorded, and compiled and run when a step is complete."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
import torch_xla
import torch_xla.distributed.xla_backend  # registers the backend
from torch.optim import Optimizer
from torch_xla import runtime
from torch_xla.core import xla_model

from accel_runtime.data.feeding import Feed
from accel_runtime.devices import Device, parameters_kept
from accel_runtime.errors import ConfigError
from accel_runtime.tree import Tree, place
from accel_runtime.world import World

# What the generator begins with in every process, whatever the script has seeded torch with.
UNSEEDED = 101


class Xla(Device):
    """One device for each process, through PJRT."""

    name = "xla"
    backend = "xla"
    data_parallel = "xla"

    def __init__(self) -> None:
        self._recording = False  # whether anything may have been recorded since the last sync

    def world(self, launched: World) -> World:
        """PJRT numbers processes by the topology of the chips, and not as the launcher did."""
        # Joined first where a launcher has started many: only that tells each process which chip is its own.
        if (launched.size > 1 or runtime.world_size() > 1) and not dist.is_initialized():
            dist.init_process_group("xla", init_method="xla://")
        size = runtime.world_size()
        if launched.size not in (1, size):
            raise ConfigError(
                f"{launched.launcher} started {launched.size} processes, and XLA on {runtime.device_type()} joins "
                f"{size}; start one, or use the machine's TPU"
            )
        if size == 1:
            return launched  # though the machine may have more chips
        local_size = runtime.local_process_count() * runtime.addressable_device_count()
        rank, local_rank = runtime.global_ordinal(), runtime.local_ordinal()
        return World(rank, size, local_rank, local_size, rank // local_size, launched.launcher)

    def of_rank(self, local_rank: int) -> torch.device:
        device: torch.device = torch_xla.device()
        if xla_model.get_rng_state() == UNSEEDED:
            xla_model.set_rng_state(torch.initial_seed())
        return device

    def synchronize(self) -> None:
        torch_xla.sync(wait=True)

    def empty_cache(self) -> None:
        pass

    def moving(self) -> AbstractContextManager[None]:
        return parameters_kept()

    def feed(self, device: torch.device, non_blocking: bool) -> Feed:
        return Feed(device, non_blocking, pins=False, before_batch=self._begin_batch)

    def follow(self, optimizer: Optimizer) -> None:
        optimizer.register_step_post_hook(self._end_step)

    def portable(self, value: Tree) -> Tree:
        return place(value, torch.device("cpu"))

    def random_state(self) -> Any:
        return xla_model.get_rng_state()

    def restore_random_state(self, state: Any) -> None:
        xla_model.set_rng_state(state)

    def _begin_batch(self) -> None:
        """A loop without an optimizer, such as an evaluation, must not record all of its batches as one program."""
        if self._recording:
            torch_xla.sync()
        self._recording = True

    def _end_step(self, *_: Any) -> None:
        torch_xla.sync()
        self._recording = False
