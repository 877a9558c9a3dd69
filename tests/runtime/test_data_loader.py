"""Accelerate's names for what shards data."""

import pytest
import torch
from accel_runtime import Accelerator, DataLoaderConfiguration
from accel_runtime.data_loader import (
    BatchSamplerShard,
    DataLoaderDispatcher,
    DataLoaderShard,
    IterableDatasetShard,
    SkipBatchSampler,
    SkipDataLoader,
    prepare_data_loader,
    skip_first_batches,
)
from accel_runtime.errors import ConfigError
from torch.utils.data import BatchSampler, DataLoader


def test_the_shards_of_a_batch_sampler_are_those_of_prepared_loaders():
    batches = BatchSampler(range(22), batch_size=3, drop_last=False)
    shards = [BatchSamplerShard(batches, 2, rank) for rank in range(2)]
    assert [list(shard)[-1] for shard in shards] == [[18, 19, 20], [21, 0, 1]]
    assert [len(shard) for shard in shards] == [4, 4]
    uneven = [BatchSamplerShard(batches, 3, rank, even_batches=False) for rank in range(3)]
    assert [len(shard) for shard in uneven] == [len(list(shard)) for shard in uneven] == [3, 3, 2]
    with pytest.raises(ConfigError, match="round multiple"):
        BatchSamplerShard(batches, 2, 0, split_batches=True)


def test_the_shards_of_a_stream_cover_it():
    shards = [IterableDatasetShard(range(10), 2, num_processes=2, process_index=rank) for rank in range(2)]
    assert [list(shard) for shard in shards] == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 0, 1]]
    assert [len(shard) for shard in shards] == [6, 6]


def test_a_prepared_loader_is_known_by_accelerates_names():
    loader = Accelerator(cpu=True).prepare(DataLoader(range(8), batch_size=2))
    assert isinstance(loader, DataLoaderShard) and isinstance(loader, DataLoader)
    assert not isinstance(loader, DataLoaderDispatcher) and not isinstance(loader, SkipDataLoader)
    assert isinstance(skip_first_batches(loader, 1), SkipDataLoader)
    assert not isinstance(DataLoader(range(8)), DataLoaderShard)
    dispatched = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=True))
    assert isinstance(dispatched.prepare(DataLoader(range(8))), DataLoaderDispatcher)


def test_loaders_are_made_by_accelerates_names():
    assert [batch.tolist() for batch in DataLoaderShard(range(6), batch_size=3)] == [[0, 1, 2], [3, 4, 5]]
    assert [batch.tolist() for batch in SkipDataLoader(range(6), batch_size=3, skip_batches=1)] == [[3, 4, 5]]
    assert list(SkipBatchSampler([[0], [1], [2]], 1)) == [[1], [2]]


def test_a_loader_is_prepared_for_a_place_that_is_named():
    parts = [
        prepare_data_loader(DataLoader(range(8), batch_size=2), num_processes=2, process_index=rank) for rank in (0, 1)
    ]
    assert [[batch.tolist() for batch in part] for part in parts] == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    orders = []
    for rank in (0, 1):
        torch.manual_seed(3)
        shuffled = DataLoader(range(8), batch_size=2, shuffle=True)
        orders.append([b.tolist() for b in prepare_data_loader(shuffled, num_processes=2, process_index=rank)])
    assert sorted(sample for order in orders for batch in order for sample in batch) == list(range(8))
    with pytest.raises(ConfigError, match="slice_fn_for_dispatch"):
        prepare_data_loader(DataLoader(range(8)), slice_fn_for_dispatch=len)
