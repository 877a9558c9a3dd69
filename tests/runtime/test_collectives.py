"""Collectives of a single process."""

import pytest
import torch
from accel_runtime import Accelerator
from accel_runtime.errors import UsageError
from accel_runtime.utils import gather_object


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
