"""Devices: who gets which, what joins their processes, and that everything arrives; on imitations, for none is here."""

from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from accel_runtime import Accelerator, resolve
from accel_runtime.checkpoint.run_state import random_states, restore_random
from accel_runtime.devices import Device, native, parameters_kept
from accel_runtime.errors import ConfigError
from accel_runtime.options import Options
from accel_runtime.tree import leaves
from accel_runtime.world import World
from torch import nn
from torch.utils.data import DataLoader

from tests.gpu_stand_in import gpus


class Meta(Device):
    """Tensors without content, on any machine: what was not moved there stands out."""

    name = "meta"
    backend = "gloo"

    def of_rank(self, local_rank):
        return torch.device("meta")

    def synchronize(self):
        pass

    def empty_cache(self):
        pass

    def moving(self):
        return parameters_kept()


class Movable:
    """Not a tensor, but with a `.to`, as the batches of graph libraries."""

    def __init__(self, tensor):
        self.tensor = tensor

    def to(self, device):
        return Movable(self.tensor.to(device))


@dataclass(frozen=True)
class Sample:
    image: torch.Tensor
    extra: dict


Pair = namedtuple("Pair", "left right")


def nested(samples):
    one = torch.ones(len(samples))
    return {"pair": Pair(one, [one, "text"]), "sample": Sample(one, {"deep": (one, 3)}), "graph": Movable(one)}


@pytest.fixture
def on_meta(monkeypatch):
    monkeypatch.setattr(resolve, "device_for", lambda *_: Meta())


def test_every_tensor_of_a_batch_arrives(on_meta):
    loader = Accelerator().prepare(DataLoader(range(4), batch_size=2, collate_fn=nested))
    for batch in loader:
        graph = batch.pop("graph")
        kinds = [leaf.device.type for _, leaf in leaves(batch) if isinstance(leaf, torch.Tensor)]
        assert (kinds, graph.tensor.device.type) == (["meta"] * 4, "meta")
        assert (type(batch["pair"]), type(batch["sample"])) == (Pair, Sample)
        assert (batch["pair"].right[1], batch["sample"].extra["deep"][1]) == ("text", 3)


def test_every_tensor_of_a_model_and_of_its_optimizer_arrives(on_meta):
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    model[2].weight = model[0].weight
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(3, 2)).sum().backward()
    optimizer.step()
    model, optimizer = Accelerator().prepare(model, optimizer)
    held = [weight for group in optimizer.param_groups for weight in group["params"]]
    assert [id(weight) for weight in held] == [id(weight) for weight in model.parameters()]
    assert model[2].weight is model[0].weight
    # Torch keeps the count of steps on the CPU, wherever the weights are.
    slots = [value for slots in optimizer.state.values() for name, value in slots.items() if name != "step"]
    tensors = [*model.parameters(), *model.buffers(), *slots, *(weight.grad for weight in held)]
    assert len(slots) == 2 * len(held)
    assert {tensor.device.type for tensor in tensors} == {"meta"}


def test_what_shall_stay_stays(on_meta):
    accelerator = Accelerator()
    model, loader = accelerator.prepare(nn.Linear(1, 1), DataLoader(torch.ones(2)), device_placement=[False, False])
    other = accelerator.prepare_data_loader(DataLoader(torch.ones(2)), device_placement=False)
    assert {model.weight.device.type, *(batch.device.type for batch in [*loader, *other])} == {"cpu"}


@pytest.fixture
def machine_with(monkeypatch):
    """Makes torch see `count` devices of a kind; returns what was asked of it."""

    def imitate(kind, count, backend="gloo"):
        asked = SimpleNamespace(current=None, states=[])
        module = SimpleNamespace(
            get_rng_state=lambda: torch.tensor([7], dtype=torch.uint8), set_rng_state=asked.states.append
        )
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: SimpleNamespace(type=kind))
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
        monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)
        monkeypatch.setattr(torch.accelerator, "set_device_index", lambda index: setattr(asked, "current", index))
        monkeypatch.setattr(torch, "get_device_module", lambda _: module)
        monkeypatch.setattr(torch.distributed, "get_default_backend_for_device", lambda _: backend)
        return asked

    return imitate


def test_each_process_gets_its_own_device(machine_with):
    asked = machine_with("cuda", 4)
    device = native.Native()
    assert device.of_rank(2) == torch.device("cuda", 2)
    assert asked.current == 2
    with pytest.raises(ConfigError, match="number 4 on its machine, which has 4 cuda devices"):
        device.of_rank(4)


@pytest.mark.parametrize(("kind", "backend"), [("cuda", "asked"), ("mtia", "asked"), ("npu", "hccl"), ("hpu", "hccl")])
def test_the_backend_is_that_of_the_table_else_what_torch_says(machine_with, kind, backend):
    machine_with(kind, 1, backend="asked")
    assert native.Native().backend == backend


def test_a_process_that_sees_one_device_takes_it_whatever_its_rank(machine_with):
    machine_with("cuda", 1)
    assert native.Native().of_rank(3) == torch.device("cuda", 0)


def test_a_mac_has_one_device_without_a_number_and_trains_on_one_process(machine_with):
    machine_with("mps", 1)
    assert native.Native().of_rank(0) == torch.device("mps")
    with pytest.raises(ConfigError, match="start at most 1"):
        native.Native().of_rank(1)


def test_the_generator_of_a_device_is_kept_and_not_given_to_another_kind(machine_with):
    asked = machine_with("cuda", 1)
    states = random_states(native.Native())
    restore_random(states, native.Native())
    assert [state.tolist() for state in asked.states] == [[7]]
    other = machine_with("xpu", 1)
    restore_random(states, native.Native())
    assert other.states == []
    restore_random(states, resolve.device_for(Options(cpu=True), {}))
    assert "device" not in random_states(resolve.device_for(Options(cpu=True), {}))


def test_xla_is_chosen_where_its_runtime_was_asked_for_and_is_installed(monkeypatch):
    monkeypatch.setattr(resolve, "is_torch_xla_available", lambda: True)
    assert resolve.device_name({"PJRT_DEVICE": "TPU"}) == "xla"
    assert resolve.device_name({}) == "cpu"
    monkeypatch.setattr(resolve, "is_torch_xla_available", lambda: False)
    assert resolve.device_name({"PJRT_DEVICE": "TPU"}) == "cpu"


def test_a_tpu_that_torch_itself_knows_needs_no_xla(machine_with, monkeypatch):
    monkeypatch.setattr(resolve, "is_torch_xla_available", lambda: True)
    asked = machine_with("tpu", 4, backend="of torch_tpu")
    monkeypatch.setattr(torch, "device", lambda kind, number: f"{kind}:{number}")  # this torch knows no such name
    assert resolve.device_name({"PJRT_DEVICE": "TPU"}) == "native"
    device = native.Native()
    assert (device.name, device.backend, device.data_parallel) == ("tpu", "of torch_tpu", "ddp")
    assert (device.of_rank(3), asked.current) == ("tpu:3", 3)
    assert not device.traits.pins


@pytest.mark.parametrize(("strategy", "precision"), [("ddp", "fp16"), ("ddp", "fp8"), ("deepspeed", "bf16")])
def test_what_a_tpu_cannot_do_is_refused(strategy, precision):
    with pytest.raises(ConfigError, match="on tpu is refused"):
        resolve.check_combination(strategy, precision, "tpu")
    resolve.check_combination("fsdp", "bf16", "tpu")


@pytest.mark.parametrize(
    ("asked", "found"), [("cuda:1", "cuda:1"), (torch.device("cuda", 3), "cuda:3"), ("cuda", "cuda:0")]
)
def test_a_script_that_names_its_device_has_it_on_one_process(asked, found):
    with gpus(4):
        accelerator = Accelerator(device=asked)
        assert accelerator.prepare(nn.Linear(1, 1)).weight.device == accelerator.device == torch.device(found)
        assert torch.accelerator.current_device_index() == accelerator.device.index


def test_the_cpu_by_its_name_beside_gpus():
    with gpus(1):
        assert Accelerator(device="cpu").device == torch.device("cpu")


def test_of_many_processes_each_has_its_own_device(machine_with, caplog):
    machine_with("cuda", 2)
    for rank in (0, 1):
        world = World(rank=rank, size=2, local_rank=rank, local_size=2)
        assert resolve._own_device(native.Native(), world, torch.device("cuda:1")) == torch.device("cuda", rank)
    assert "device='cuda:1': each of the 2 processes has a device of its own" in caplog.text
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "cuda:7"}, "device='cuda:7' is not there: this machine has 2 cuda devices"),
        ({"device": "xpu"}, "device='xpu' is not available on this machine, which has cuda"),
        ({"device": "gpu"}, "device='gpu' names no device of torch"),
        ({"device": "cuda", "cpu": True}, "cpu=True and device='cuda' ask for two devices"),
    ],
)
def test_a_device_that_is_not_there_is_refused(arguments, message):
    with gpus(2), pytest.raises(ConfigError, match=message):
        Accelerator(**arguments)


def test_a_gpu_is_refused_where_there_is_none():
    with pytest.raises(ConfigError, match="device='cuda:0' is not available on this machine, which has cpu"):
        Accelerator(device="cuda:0")
