"""Accelerate's names for what shards data."""

import pickle

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


def stateful_loader(workers=0, **settings):
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True))
    return accelerator.prepare(DataLoader(torch.arange(16), 4, num_workers=workers, **settings))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_goes_on_where_its_state_was_taken(workers):
    torch.manual_seed(3)
    first, seen = stateful_loader(workers, shuffle=True), []
    for index, batch in enumerate(first):
        seen.append(batch.tolist())
        if index == 1:
            state = pickle.loads(pickle.dumps(first.state_dict()))
    second = stateful_loader(workers, shuffle=True)
    second.load_state_dict(state)
    assert [batch.tolist() for batch in second] == seen[2:]
    assert len(list(second)) == 4 and isinstance(skip_first_batches(second, 1), SkipDataLoader)


def test_only_stateful_loaders_have_a_state():
    assert not hasattr(Accelerator(cpu=True).prepare(DataLoader(range(4))), "state_dict")
    assert isinstance(stateful_loader(), DataLoader) and isinstance(stateful_loader(), DataLoaderShard)


def test_a_stateful_loader_is_torchdatas_where_that_is_installed(monkeypatch):
    class StatefulDataLoader(DataLoader):
        pass

    class OfTheScript(DataLoader):
        pass

    monkeypatch.setattr("accel_runtime.data.stateful._torchdatas", lambda: StatefulDataLoader)
    assert isinstance(stateful_loader(), StatefulDataLoader)
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True))
    assert isinstance(accelerator.prepare(OfTheScript(range(4))), OfTheScript)


def test_a_state_that_is_taken_after_a_loop_was_left_says_what_is_lost():
    model = torch.nn.Linear(1, 1)
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True))
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), 0.1), DataLoader(torch.ones(8, 1), 2)
    )
    for index, batch in enumerate(loader):
        accelerator.backward(model(batch).sum())
        optimizer.step()
        if index == 1:
            break
    with pytest.warns(UserWarning, match=r"left after 2 of 4 batches.*call state_dict\(\) inside the loop"):
        loader.state_dict()


def test_another_configuration_holds_for_what_is_prepared_after_it():
    accelerator = Accelerator(cpu=True)
    before = accelerator.prepare(DataLoader(range(4)))
    accelerator.dataloader_config = DataLoaderConfiguration(use_stateful_dataloader=True, even_batches=False)
    after = accelerator.prepare(DataLoader(range(4)))
    assert (before.settings.stateful, after.settings.stateful, after.settings.even) == (False, True, False)
    assert accelerator.even_batches is False and not after.settings.split
