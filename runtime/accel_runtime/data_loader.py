"""Where scripts for Accelerate import prepared loaders and what shards them; the sharding is that of `data/`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from accel_runtime.collectives import Collectives
from accel_runtime.data.feeding import Feed
from accel_runtime.data.iteration import Iterations
from accel_runtime.data.loader import LoaderSettings, PreparedLoader, prepared_loader
from accel_runtime.data.seedable import SeedableRandomSampler
from accel_runtime.data.sharding import Sharding, shard, shard_samples
from accel_runtime.data.skipping import skip_first_batches
from accel_runtime.errors import ConfigError
from accel_runtime.latest import latest
from accel_runtime.state import PartialState
from accel_runtime.unsupported import absent
from accel_runtime.world import World


class BatchSamplerShard(BatchSampler):
    """The batches of indices that one process takes of a batch sampler."""

    def __init__(
        self,
        batch_sampler: Any,
        num_processes: int = 1,
        process_index: int = 0,
        split_batches: bool = False,
        even_batches: bool = True,
    ) -> None:
        self.batch_sampler = batch_sampler
        self.batch_size: Any = getattr(batch_sampler, "batch_size", None)
        self.drop_last = bool(getattr(batch_sampler, "drop_last", False))
        self.sharding = Sharding(
            process_index, num_processes, self.batch_size, self.drop_last, split_batches, even_batches
        )

    def __iter__(self) -> Iterator[Any]:
        return (indices for indices, _ in shard(self.batch_sampler, self.sharding) if len(indices))

    def __len__(self) -> int:
        if self.sharding.split:
            return len(self.batch_sampler)
        rounds, rest = divmod(len(self.batch_sampler), self.sharding.size)
        if self.drop_last or not rest:
            return rounds
        return rounds + (1 if self.sharding.even else int(self.sharding.rank < rest))

    @property
    def total_length(self) -> int:
        return len(self.batch_sampler)

    def set_epoch(self, epoch: int) -> None:
        owners: tuple[Any, ...] = (self.batch_sampler, getattr(self.batch_sampler, "sampler", None))
        for owner in owners:
            if hasattr(owner, "set_epoch"):
                owner.set_epoch(epoch)


class IterableDatasetShard(IterableDataset[Any]):
    """The samples that one process takes of a stream, all of which it reads."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        drop_last: bool = False,
        num_processes: int = 1,
        process_index: int = 0,
        split_batches: bool = False,
    ) -> None:
        self.dataset = dataset
        self.sharding = Sharding(process_index, num_processes, batch_size, drop_last, split_batches)

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(samples for samples, _, _ in shard_samples(self.dataset, self.sharding))

    def __len__(self) -> int:
        full = self.sharding.part * self.sharding.size
        rounds, rest = divmod(len(self.dataset), full)
        return (rounds + (rest > 0 and not self.sharding.drop_last)) * self.sharding.part

    def set_epoch(self, epoch: int) -> None:
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)


class SkipBatchSampler(BatchSampler):
    """The batches of another sampler without the first ones."""

    def __init__(self, batch_sampler: Any, skip_batches: int = 0) -> None:
        self.batch_sampler = batch_sampler
        self.sampler = getattr(batch_sampler, "sampler", None)  # type: ignore[assignment]
        self.batch_size: Any = getattr(batch_sampler, "batch_size", None)
        self.drop_last = bool(getattr(batch_sampler, "drop_last", False))
        self.skip_batches = skip_batches

    def __iter__(self) -> Iterator[Any]:
        return islice(self.batch_sampler, self.skip_batches, None)

    def __len__(self) -> int:
        return max(len(self.batch_sampler) - self.skip_batches, 0)

    @property
    def total_length(self) -> int:
        return len(self.batch_sampler)


def prepare_data_loader(
    dataloader: Any,
    device: torch.device | str | None = None,
    num_processes: int | None = None,
    process_index: int | None = None,
    split_batches: bool = False,
    put_on_device: bool = False,
    rng_types: Any = None,
    dispatch_batches: bool | None = None,
    even_batches: bool = True,
    slice_fn_for_dispatch: Callable[..., Any] | None = None,
    use_seedable_sampler: bool = False,
    data_seed: int | None = None,
    non_blocking: bool = False,
    use_stateful_dataloader: bool = False,
    torch_device_mesh: Any = None,
) -> Any:
    """A loader that gives this process its part, as `Accelerator.prepare` does, for code without an Accelerator.

    Generators of samplers agree between the processes whatever `rng_types` says.
    """
    for name, value in (("slice_fn_for_dispatch", slice_fn_for_dispatch), ("torch_device_mesh", torch_device_mesh)):
        if value is not None:
            raise ConfigError(f"prepare_data_loader({name}=...) is not here; leave it out")
    state = PartialState()
    size = state.num_processes if num_processes is None else num_processes
    rank = state.process_index if process_index is None else process_index
    together = (rank, size) == (state.process_index, state.num_processes)
    collectives = state._collectives if together else _Unconnected(World(rank, size), state.device)
    settings = LoaderSettings(
        collectives=collectives,
        iterations=_iterations(),
        split=split_batches,
        even=even_batches,
        dispatch=bool(dispatch_batches),
        seedable=use_seedable_sampler,
        seed=data_seed,
        stateful=use_stateful_dataloader,
        feed=Feed(torch.device(device or state.device), non_blocking) if put_on_device else None,
    )
    return prepared_loader(dataloader, settings)


class _Unconnected(Collectives):
    """Of a process that plays one of several without the others: what they would say is what it says."""

    def broadcast_objects(self, objects: list[Any], from_process: int = 0) -> list[Any]:
        return objects


class _Kind(type):
    """A name of Accelerate for prepared loaders: calling it makes one, and `isinstance` knows those of prepare()."""

    dispatch = False
    skips = False

    def __instancecheck__(cls, loader: Any) -> bool:
        if not issubclass(type(loader), PreparedLoader):
            return False
        return (loader.settings.dispatch or not cls.dispatch) and (loader.skipped > 0 or not cls.skips)

    def __call__(
        cls,
        dataset: Any,
        device: torch.device | str | None = None,
        rng_types: Any = None,
        skip_batches: int = 0,
        use_stateful_dataloader: bool = False,
        split_batches: bool = False,
        _non_blocking: bool = False,
        **settings: Any,
    ) -> Any:
        loader = prepare_data_loader(
            DataLoader(dataset, **settings),
            device=device,
            put_on_device=device is not None,
            rng_types=rng_types,
            split_batches=split_batches,
            dispatch_batches=cls.dispatch,
            non_blocking=_non_blocking,
            use_stateful_dataloader=use_stateful_dataloader,
        )
        return loader.skipping(skip_batches) if skip_batches else loader


class DataLoaderStateMixin(metaclass=_Kind):
    """Every prepared loader is one."""


class DataLoaderShard(metaclass=_Kind):
    """Every prepared loader is one, on one process and on many."""


class DataLoaderDispatcher(metaclass=_Kind):
    """A prepared loader of which process 0 reads for all."""

    dispatch = True


class SkipDataLoader(metaclass=_Kind):
    """A prepared loader without its first batches."""

    skips = True


def get_sampler(dataloader: Any) -> Any:
    """What orders the samples of a loader, prepared or not."""
    batches = getattr(dataloader, "batch_sampler", None)
    return getattr(batches, "sampler", None) or dataloader.sampler


def _iterations() -> Iterations:
    """Those of the Accelerator made last, so that its accumulation knows the loader; else new ones."""
    made = latest()
    return Iterations() if made is None else made.gradient_state.iterations


__all__ = [
    "BatchSamplerShard",
    "DataLoaderDispatcher",
    "DataLoaderShard",
    "DataLoaderStateMixin",
    "IterableDatasetShard",
    "SeedableRandomSampler",
    "SkipBatchSampler",
    "SkipDataLoader",
    "get_sampler",
    "prepare_data_loader",
    "skip_first_batches",
]

__getattr__ = absent(__name__)
