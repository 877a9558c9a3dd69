"""Data parallel on two real processes: the losses of one process, freezing and sparse gradients."""

import pytest
import torch
from accel_runtime import Accelerator, DistributedDataParallelKwargs
from accel_runtime.errors import ConfigError
from accel_runtime.strategies.batch_norms import with_synced_batch_norms
from accel_runtime.strategies.ddp_sparse import exchange_rows
from torch import nn

from tests.distributed.transformer import ACCUMULATION, alone, relative_distance, train
from tests.distributed.worlds import in_world

TOLERANCE = {"no": 1e-4, "bf16": 2e-2, "fp16": 2e-2}


class Partly(nn.Module):
    """Uses one of its layers, and counts in a buffer."""

    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)
        self.frozen = nn.Linear(2, 2).requires_grad_(False)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, inputs):
        return self.frozen(self.used(inputs)) + 0 * self.count


class Positions(nn.Module):
    """Adds a table that is a view with unusual strides, as positional encodings often are."""

    def __init__(self, expanded):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        table = torch.arange(12.0).reshape(6, 2)
        self.register_buffer("table", table[:1].expand(6, 2) if expanded else table.unsqueeze(0).transpose(0, 1))

    def forward(self, inputs):
        return self.layer(inputs).unsqueeze(1) + self.table[:2].view(2, 1, 2)


def trained_with_views(expanded):
    accelerator = Accelerator()
    model = accelerator.prepare(Positions(expanded))
    table = model.table.clone()
    for _ in range(3):
        accelerator.backward(model(torch.ones(2, 2)).sum())
    return torch.equal(model.table, table), model.table.shape, model.layer.bias.grad.tolist()


def losses_of(precision):
    return train(Accelerator(gradient_accumulation_steps=ACCUMULATION, mixed_precision=precision)).losses


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


def weights_of_a_schedule(schedule, hook="no"):
    """Trains a step for each entry: what of the model is frozen in it."""
    torch.manual_seed(4)
    accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(comm_hook=hook)])
    model = Deep()
    model.body.requires_grad_(schedule[0] not in ("body", "all"))
    model.head.requires_grad_(schedule[0] != "all")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = torch.arange(12.0 * len(schedule)).reshape(len(schedule), 4, 3).sin()
    model, optimizer = accelerator.prepare(model, optimizer)
    size, rank = accelerator.num_processes, accelerator.process_index
    for step, frozen in enumerate(schedule):
        bare = accelerator.unwrap_model(model)
        bare.body.requires_grad_(frozen not in ("body", "all"))
        bare.head.requires_grad_(frozen not in ("head", "all"))
        inputs = data[step][rank::size].clone().requires_grad_(frozen == "all")  # of the other half of a GAN
        loss = model(inputs).pow(2).mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        if frozen != "all":
            optimizer.step()
    return [weight.tolist() for weight in accelerator.unwrap_model(model).parameters()]


SCHEDULES = [
    ["", "", "body", "body", "", ""],
    ["body", "body", "", "", "head", ""],
    ["", "all", "", "all", "head", "all"],
    ["all", "all", "", "body", "", "all", ""],
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=" ".join)
def test_weights_that_are_frozen_and_thawed_while_training(schedule):
    reference = weights_of_a_schedule(schedule)
    first, second = in_world(2, lambda: weights_of_a_schedule(schedule))
    assert first == second
    for weight, other in zip(reference, first, strict=True):
        assert torch.allclose(torch.tensor(weight), torch.tensor(other), atol=1e-6)


def thawed_without_an_optimizer():
    accelerator = Accelerator()
    teacher = accelerator.prepare(Deep().requires_grad_(False))
    data = torch.ones(4, 3, requires_grad=True)
    accelerator.backward(teacher(data).mean())
    teacher.requires_grad_(True)
    accelerator.backward(teacher(data).mean())


def test_a_model_that_was_frozen_and_had_no_optimizer_must_not_train():
    with pytest.raises(Exception, match="Deep was frozen when it was prepared and trains now"):
        in_world(2, thawed_without_an_optimizer)


def test_hooks_of_the_exchange_stay_when_weights_are_frozen():
    first, second = in_world(2, lambda: weights_of_a_schedule(SCHEDULES[0], "fp16"))
    assert first == second


def trained_though_unused():
    settings = DistributedDataParallelKwargs(find_unused_parameters=True)
    accelerator = Accelerator(kwargs_handlers=[settings])
    model = accelerator.prepare(Partly())
    # Rank 0's buffers are everybody's, after each backward pass.
    model.count.fill_(accelerator.process_index + 1)
    for _ in range(2):
        accelerator.backward(model(torch.ones(1, 2)).sum())
    return model.count.item(), model.used.weight.grad.tolist(), model.unused.weight.grad is None


def other_errors_stay():
    model = Accelerator().prepare(nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        model(torch.ones(1, 3))


def sync_batchnorm_on_the_cpu():
    accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(sync_batchnorm=True)])
    with pytest.raises(ConfigError) as raised:
        accelerator.prepare(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    return str(raised.value)


def test_two_processes_train_as_one():
    def work():
        other_errors_stay()
        return (
            {precision: losses_of(precision) for precision in TOLERANCE},
            trained_though_unused(),
            sync_batchnorm_on_the_cpu(),
            [trained_with_views(expanded) for expanded in (False, True)],
        )

    first, second = in_world(2, work)
    reference = alone().losses
    for precision, tolerance in TOLERANCE.items():
        assert relative_distance(first[0][precision], reference) < tolerance, precision
    assert first == second
    _, (count, gradient, still_unused), no_sync, views = first
    assert views == [(True, shape, [6.0, 6.0]) for shape in ((6, 1, 2), (6, 2))]
    assert (count, still_unused) == (1, True)
    assert gradient
    assert "torch has no SyncBatchNorm for the CPU" in no_sync


def test_batch_norms_are_exchanged_and_keep_their_weights():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to("meta")
    before = list(model.parameters())
    synced = with_synced_batch_norms(model)
    assert isinstance(synced[1], nn.SyncBatchNorm)
    assert all(one is other for one, other in zip(before, synced.parameters(), strict=True))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.bags = nn.Embedding(9, 3, sparse=True), nn.EmbeddingBag(5, 3, sparse=True)
        self.head = nn.Linear(3, 1)

    def forward(self, words):
        return self.head(self.table(words).mean(1) + self.bags(words % 5))


def trained_on_words(by_rows):
    torch.manual_seed(2)
    accelerator = Accelerator()
    model = accelerator.prepare(Words())
    if by_rows:
        exchange_rows(accelerator._session.strategy.exchanges.of_models[0])
    bare = accelerator.unwrap_model(model)
    dense = [*bare.table.parameters(), *bare.head.parameters()]
    optimizers = [torch.optim.SparseAdam(list(bare.bags.parameters())), torch.optim.SGD(dense, 0.1)]
    words = torch.tensor([[0, 1, 1, 2], [2, 5, 5, 5]])[accelerator.process_index :: accelerator.num_processes]
    for step in range(3):
        accelerator.backward(model(words[:, : 2 + step % 2]).mean())
        kinds = {weight.grad.layout for weight in bare.parameters()}
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return len(kinds), [weight.tolist() for weight in bare.parameters()]


def test_sparse_gradients_are_averaged_by_rows_as_by_gloo():
    """NCCL cannot; the way around it is tried on gloo, which can."""
    reference = trained_on_words(by_rows=False)
    for by_rows in (True, False):
        first, second = in_world(2, lambda: trained_on_words(by_rows))  # noqa: B023
        assert first == second
        assert first[0] == 2
        for weight, other in zip(reference[1], first[1], strict=True):
            assert torch.allclose(torch.tensor(weight), torch.tensor(other), atol=1e-6)
