"""What `prepare` takes, in which order, and what it says about the rest."""

import pickle
import warnings
from collections import defaultdict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from accel_runtime import Accelerator, DataLoaderConfiguration
from accel_runtime.data.loader import PreparedLoader
from accel_runtime.errors import ConfigError, UsageError
from accel_runtime.tree import place
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader


def parts():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return model, optimizer, StepLR(optimizer, 1), DataLoader(torch.ones(4, 2), 2)


def test_objects_come_back_in_the_order_given():
    model, optimizer, scheduler, loader = parts()
    prepared = Accelerator(cpu=True).prepare(scheduler, loader, optimizer, model)
    assert [type(one).__name__ for one in prepared] == [
        "PreparedScheduler",
        "PreparedLoader",
        "PreparedOptimizer",
        "Linear",
    ]


def test_one_object_comes_back_bare():
    assert isinstance(Accelerator(cpu=True).prepare(nn.Linear(1, 1)), nn.Linear)


def test_preparing_again_changes_nothing():
    accelerator = Accelerator(cpu=True)
    given = parts()
    once = accelerator.prepare(*given)
    assert all(a is b for a, b in zip(once, accelerator.prepare(*once)))
    assert all(a is b for a, b in zip(once, accelerator.prepare(*given)))


def test_a_loader_is_prepared_in_each_call_of_a_function_that_keeps_it_for_itself():
    accelerator = Accelerator(cpu=True)
    model, _, _, loader = parts()

    def fit(model, loader):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        _, _, loader = accelerator.prepare(model, optimizer, loader)
        return type(loader).__name__

    assert [fit(model, loader) for _ in range(4)] == ["PreparedLoader"] * 4


def test_another_accelerator_prepares_anew():
    first, second = Accelerator(cpu=True), Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer, _, loader = first.prepare(*parts())
    model, again, loader = second.prepare(model, optimizer, loader)
    assert again.optimizer is optimizer.optimizer
    assert type(again.optimizer) is torch.optim.SGD
    with second.accumulate(model):
        assert second.gradient_state.holding
        before = model.weight.detach().clone()
        second.backward(model(torch.ones(1, 2)).sum())
        again.step()
        assert torch.equal(model.weight, before)


def test_what_a_run_does_without_is_returned_in_silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Accelerator(cpu=True).prepare(None) is None


def test_what_is_unknown_is_returned_with_a_warning():
    batches = [1, 2, 3]
    with pytest.warns(UserWarning, match="returned a list as it was"):
        assert Accelerator(cpu=True).prepare(batches) is batches


def test_optimizers_and_schedulers_that_are_not_torchs_are_known_by_shape():
    class Lookahead:
        def __init__(self, optimizer):
            self.optimizer, self.param_groups, self.steps = optimizer, optimizer.param_groups, 0

        def step(self):
            self.steps += 1

        def zero_grad(self, set_to_none=True):
            pass

    class Warmup:
        def __init__(self, optimizer):
            self.optimizer, self.steps = optimizer, 0

        def step(self):
            self.steps += 1

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, bare, _, _ = parts()
    optimizer = Lookahead(bare)
    scheduler = Warmup(optimizer)
    prepared, warmup = accelerator.prepare(optimizer, scheduler)
    for _ in range(2):
        with accelerator.accumulate(model):
            prepared.step()
            warmup.step()
    assert (optimizer.steps, scheduler.steps) == (1, 1)
    with pytest.raises(UsageError, match="Lookahead is no torch optimizer"):
        Accelerator(cpu=True, mixed_precision="fp16").prepare(Lookahead(bare))


def test_a_model_spread_by_a_device_map_is_fine_on_one_process():
    model = nn.Linear(1, 1)
    model.hf_device_map = {"a": 0, "b": 1}
    assert Accelerator(cpu=True).prepare(model) is model


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mixed_precision": "fp32"}, "mixed_precision"),
        ({"even_batches": True}, "DataLoaderConfiguration"),
        ({"rng_types": ["torch"]}, "samplers draw alike"),
        ({"megatron_lm_plugin": object()}, "use strategy fsdp or deepspeed"),
        ({"parallelism_config": object()}, "for layers that are use torch.distributed.tensor.parallel"),
        ({"kwargs_handlers": [object()]}, "which is not one of"),
        ({"log_with": "aim"}, "pass a GeneralTracker"),
        ({"split_batches": True, "dataloader_config": DataLoaderConfiguration(split_batches=False)}, "contradict"),
    ],
)
def test_an_impossible_argument_is_one_sentence(arguments, message):
    with pytest.raises(ConfigError, match=message) as raised:
        Accelerator(cpu=True, **arguments)
    assert "\n" not in str(raised.value)


def test_a_misspelt_argument_is_named_with_the_nearest():
    with pytest.raises(TypeError, match="did you mean mixed_precision"):
        Accelerator(mixed_precison="bf16")


Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True)
class Graph:
    nodes: torch.Tensor
    name: str


class Movable:
    def to(self, device):
        return f"moved to {device}"


def test_every_tensor_of_a_nested_batch_arrives():
    batch = {
        "list": [torch.ones(1), "text"],
        "tuple": (torch.ones(1),),
        "named": Pair(torch.ones(1), 2),
        "dataclass": Graph(torch.ones(1), "g"),
        "default": defaultdict(list, a=torch.ones(1)),
        "packed": pack_sequence([torch.ones(2), torch.ones(1)]),
        "object": Movable(),
    }
    moved = place(batch, torch.device("meta"))
    assert moved["list"][0].is_meta and moved["list"][1] == "text"
    assert moved["tuple"][0].is_meta
    assert moved["named"].left.is_meta and moved["named"].right == 2
    assert moved["dataclass"].nodes.is_meta and moved["dataclass"].name == "g"
    assert moved["default"]["a"].is_meta and moved["default"]["new"] == []
    assert moved["packed"].data.is_meta
    assert moved["object"] == "moved to meta"
    assert not batch["list"][0].is_meta


def test_batches_can_be_skipped_without_reading_them():
    read = []

    class Watched(torch.utils.data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            read.append(index)
            return index

    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(DataLoader(Watched(), 2))
    assert [batch.tolist() for batch in accelerator.skip_first_batches(loader, 2)] == [[4, 5]]
    assert read == [4, 5]
    assert len(loader) == 3
    plain = accelerator.skip_first_batches(DataLoader(range(6), 2), 1)
    assert [batch.tolist() for batch in plain] == [[2, 3], [4, 5]]


def test_a_seedable_shuffle_depends_on_seed_and_epoch_alone():
    config = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=3)

    def orders(noise):
        torch.manual_seed(noise)
        loader = Accelerator(cpu=True, dataloader_config=config).prepare(DataLoader(range(8), 4, shuffle=True))
        first = [batch.tolist() for batch in loader]
        for _ in loader:
            break
        second = [batch.tolist() for batch in loader]
        loader.set_epoch(0)
        return first, second, [batch.tolist() for batch in loader]

    first, second, again = orders(noise=1)
    assert (first, second, again) == orders(noise=2)
    assert first == again != second


def test_memory_is_freed_by_assigning_what_comes_back():
    accelerator = Accelerator(cpu=True)
    model, optimizer, _, _ = accelerator.prepare(*parts())
    model, optimizer = accelerator.free_memory(model, optimizer)
    assert model is None and optimizer is None


def test_a_prepared_loader_survives_a_pickle():
    loader = Accelerator(cpu=True).prepare(DataLoader(range(4), 2))
    passes = iter(loader)
    next(passes)
    twin = pickle.loads(pickle.dumps(loader))
    assert type(twin) is PreparedLoader
    assert [batch.tolist() for batch in twin] == [[0, 1], [2, 3]]


def test_checkpointed_objects_need_a_state():
    with pytest.raises(ConfigError, match=r"without state_dict and load_state_dict \(Item at index 1, a object\)"):
        Accelerator(cpu=True).register_for_checkpointing(nn.Linear(1, 1), object())


def test_a_pickle_of_an_accelerator_is_the_accelerator_where_it_was_made(monkeypatch):
    accelerator = Accelerator(cpu=True)
    pickled = pickle.dumps(accelerator)
    assert pickle.loads(pickled) is accelerator
    monkeypatch.setattr("accel_runtime.latest._all", {})
    with pytest.raises(UsageError, match="in a process that does not have it"):
        pickle.loads(pickled)
