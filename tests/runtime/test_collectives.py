"""Collectives of a single process."""

import pytest
import torch
from accel_runtime import Accelerator
from accel_runtime.errors import UsageError
from accel_runtime.utils import gather_object
from torch.utils.data import DataLoader, TensorDataset


def test_alone_everything_stays_as_it_is():
    accelerator = Accelerator(cpu=True)
    tree = {"a": torch.tensor(1.0), "b": [torch.ones(2)]}
    assert accelerator.gather(tree) is tree
    assert accelerator.gather_for_metrics(tree) is tree
    assert accelerator.reduce(tree, "mean") is tree
    assert accelerator.pad_across_processes(tree) is tree
    assert accelerator.reduce(torch.tensor(2.0), scale=3.0).item() == 6
    assert gather_object(["x"]) == ["x"]


def test_what_is_no_tensor_is_named_with_its_place():
    accelerator = Accelerator(cpu=True)
    with pytest.raises(UsageError, match=r"gather got str at \['text'\]\[1\]"):
        accelerator.gather({"text": [torch.ones(1), "b"]})


def test_an_unknown_reduction_is_refused():
    with pytest.raises(UsageError, match="use sum, mean, max, min or none"):
        Accelerator(cpu=True).reduce(torch.ones(1), "average")


def test_gathering_a_dictionary_as_an_object_asks_for_a_list():
    with pytest.raises(UsageError, match=r"gather_object\(\[value\]\)"):
        gather_object({"a": 1})


def test_rows_repeated_for_a_whole_batch_are_cut_at_a_short_last_one_as_on_many_processes():
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(DataLoader(TensorDataset(torch.arange(20.0)), batch_size=8))
    sizes, values = [], []
    for (batch,) in loader:
        loss = batch.mean()
        repeated, rows, text = accelerator.gather_for_metrics({"a": loss.repeat(8), "b": batch, "c": None}), batch, "x"
        sizes.append((len(repeated["a"]), len(repeated["b"]), len(accelerator.gather_for_metrics([text] * 8))))
        assert accelerator.gather_for_metrics(rows) is rows
        assert accelerator.gather_for_metrics(rows.repeat(3)).shape == (3 * len(rows),)
        values.append(repeated["a"])
    assert sizes == [(8, 8, 8), (8, 8, 8), (4, 4, 4)]
    assert torch.cat(values).mean() == torch.arange(20.0).mean()


def test_loaders_side_by_side_and_batches_of_unknown_size_are_left_whole_on_one_process():
    accelerator = Accelerator(cpu=True)
    short, whole = accelerator.prepare(DataLoader(range(6), 4), DataLoader(range(8), 4))
    assert [len(accelerator.gather_for_metrics(second)) for _, second in zip(short, whole)] == [4, 4]
    assert [len(accelerator.gather_for_metrics(first)) for _, first in zip(whole, short)] == [4, 2]
    uneven = accelerator.prepare(DataLoader(range(5), batch_sampler=[[0, 1, 2, 3], [4]]))
    assert [len(accelerator.gather_for_metrics(batch.sum().repeat(4))) for batch in uneven] == [4, 4]
    dropping = accelerator.prepare(DataLoader(range(6), 4, drop_last=True))
    assert [len(accelerator.gather_for_metrics(batch)) for batch in dropping] == [4]
