"""Batches on their way to the device: when they are copied, when the next one is, and where a checkpoint stands then."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from accel_runtime import Accelerator, resolve
from accel_runtime.data.feeding import Feed
from accel_runtime.devices.streams import TorchStream
from torch.utils.data import DataLoader, TensorDataset

from tests.runtime.test_devices import Meta

CPU = torch.device("cpu")


class Stream:
    """Writes down what is asked of it, and whether a copy was made inside."""

    def __init__(self, device):
        self.inside = False
        self.told = []

    def __enter__(self):
        self.inside = True

    def __exit__(self, *_):
        self.inside = False

    def hand_over(self, batch):
        self.told.append(("hand over", batch.number))


class Batch:
    """Tells the stream when it is copied."""

    def __init__(self, number, stream):
        self.number, self.stream = number, stream

    def to(self, device):
        self.stream.told.append(("copy beside" if self.stream.inside else "copy", self.number))
        return self


def loader_like(pin_memory, num_workers):
    loader = DataLoader(range(1), pin_memory=pin_memory)
    loader.__dict__["num_workers"] = num_workers
    return loader


def fed(count, pin_memory=True, num_workers=1):
    stream = Stream(CPU)
    pairs = ((Batch(number, stream), None, None) for number in range(count))
    for batch, _, _ in Feed(CPU, side_stream=lambda _: stream)(pairs, loader_like(pin_memory, num_workers)):
        stream.told.append(("use", batch.number))
    return stream.told


def test_the_next_copy_is_under_way_while_a_batch_is_used():
    assert fed(3) == [
        ("copy beside", 0),
        ("hand over", 0),
        ("copy beside", 1),
        ("use", 0),
        ("hand over", 1),
        ("copy beside", 2),
        ("use", 1),
        ("hand over", 2),
        ("use", 2),
    ]
    assert fed(0) == []


@pytest.mark.parametrize(("pin_memory", "num_workers"), [(False, 1), (True, 0)])
def test_nothing_is_read_ahead_without_pinned_memory_or_without_workers(pin_memory, num_workers):
    assert fed(2, pin_memory, num_workers) == [("copy", 0), ("use", 0), ("copy", 1), ("use", 1)]


@pytest.mark.parametrize(
    ("asked", "pinned", "expected"), [(False, False, False), (True, False, True), (False, True, True)]
)
def test_copies_do_not_block_where_the_script_asked_for_it(monkeypatch, asked, pinned, expected):
    seen = []
    monkeypatch.setattr(
        torch.Tensor, "to", lambda self, device, non_blocking=False: (seen.append(non_blocking), self)[1]
    )
    list(Feed(CPU, asked)(iter([(torch.ones(1), None, None)]), loader_like(pinned, 0)))
    assert seen == [expected]
    list(Feed(CPU, asked, pins=False)(iter([(torch.ones(1), None, None)]), loader_like(pinned, 0)))
    assert seen[1:] == [asked]


def test_the_computation_waits_for_the_copies_and_their_memory_is_kept_for_it(monkeypatch):
    told = []
    side = object()
    computing = SimpleNamespace(wait_stream=lambda stream: told.append(("waits for", stream)))
    module = SimpleNamespace(
        Stream=lambda device: side,
        stream=lambda stream: nullcontext(told.append(("queues on", stream))),
        current_stream=lambda device: computing,
    )
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: told.append((self.item(), stream)))
    stream = TorchStream(torch.device("cuda", 0))
    with stream:
        told.append("copies")
    stream.hand_over({"inputs": torch.tensor(1), "more": [torch.tensor(2), "text"]})
    assert told == [("queues on", side), "copies", ("waits for", side), (1, computing), (2, computing)]


class Ahead(Meta):
    """Copies beside the computation, to the CPU."""

    def of_rank(self, local_rank):
        return CPU

    def feed(self, device, non_blocking):
        feed = Feed(device, non_blocking, side_stream=Tolerant)
        # As for a loader with workers, of which no test needs any.
        return lambda pairs, loader: feed(pairs, loader_like(pin_memory=True, num_workers=1))


class Tolerant(Stream):
    handed = 0

    def hand_over(self, batch):
        Tolerant.handed += 1


def test_a_checkpoint_stands_where_the_script_is_and_not_where_the_copies_are(monkeypatch, tmp_path):
    monkeypatch.setattr(resolve, "device_for", lambda *_: Ahead())

    def prepared():
        data = TensorDataset(torch.arange(12))
        loader = DataLoader(data, 2, shuffle=True, generator=torch.Generator().manual_seed(3))
        accelerator = Accelerator()
        return accelerator, accelerator.prepare(loader)

    accelerator, loader = prepared()
    seen = []
    for index, (batch,) in enumerate(loader):
        seen.append(batch.tolist())
        if index == 2:
            accelerator.save_state(tmp_path / "state")
    accelerator, loader = prepared()
    assert accelerator.load_state(tmp_path / "state").step == 3
    assert [batch.tolist() for (batch,) in loader] == seen[3:]
    assert Tolerant.handed == 6 + 3
