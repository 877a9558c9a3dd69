"""On one process a prepared script is the plain script: same order, same random numbers, same losses, to the bit."""

import copy

import pytest
import torch
from accel_runtime import Accelerator
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler


class Noisy(torch.utils.data.Dataset):
    """Augments with random numbers as it is read, as image pipelines do."""

    def __len__(self):
        return 23

    def __getitem__(self, index):
        return torch.full((8,), float(index)) / 23 + 0.1 * torch.randn(8), index % 2


class NoisyStream(IterableDataset):
    def __iter__(self):
        return (Noisy()[index] for index in range(23))


def loaders():
    weights = WeightedRandomSampler([1.0] * 23, 23)
    return {
        "shuffled": lambda: DataLoader(Noisy(), 4, shuffle=True),
        "last batch dropped": lambda: DataLoader(Noisy(), 4, shuffle=True, drop_last=True),
        "two workers": lambda: DataLoader(Noisy(), 4, shuffle=True, num_workers=2),
        "own generator": lambda: DataLoader(Noisy(), 4, shuffle=True, generator=torch.Generator().manual_seed(5)),
        "weighted": lambda: DataLoader(Noisy(), 4, sampler=weights),
        "stream": lambda: DataLoader(NoisyStream(), 4),
    }


def train(loader, prepare, backward, epochs=2):
    """Dropout in the model and noise in the data: any difference in the stream of random numbers shows."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, loader = prepare(model, optimizer, loader)
    losses = []
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            backward(loss)
            optimizer.step()
            losses.append(loss.item())
    return losses, torch.get_rng_state()


@pytest.mark.parametrize("kind", loaders())
def test_losses_and_random_numbers_are_those_of_plain_pytorch(kind):
    accelerator = Accelerator(cpu=True)
    plain, plain_state = train(loaders()[kind](), lambda *parts: parts, lambda loss: loss.backward())
    ours, our_state = train(loaders()[kind](), accelerator.prepare, accelerator.backward)
    assert ours == plain
    assert torch.equal(our_state, plain_state)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_regions_of_autocast_are_the_plain_ones_when_forward_is_left_alone(precision):
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    inputs, targets = torch.randn(12, 8), torch.randint(2, (12,))

    def run(region, prepare, backward, step):
        torch.manual_seed(0)
        model = nn.Linear(8, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = prepare(model, optimizer)
        losses = []
        for _ in range(5):
            with region():
                loss = nn.functional.cross_entropy(model(inputs), targets)
            assert model(inputs).dtype is torch.float32
            backward(loss)
            step(optimizer)
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    scaler = torch.amp.GradScaler("cpu", enabled=precision == "fp16")

    def plain_step(optimizer):
        scaler.step(optimizer)
        scaler.update()

    plain = run(
        lambda: torch.autocast("cpu", dtype),
        lambda *parts: parts,
        lambda loss: scaler.scale(loss).backward(),
        plain_step,
    )
    accelerator = Accelerator(cpu=True, mixed_precision=precision, autocast_forward=False)
    ours = run(accelerator.autocast, accelerator.prepare, accelerator.backward, lambda optimizer: optimizer.step())
    assert ours == plain


def test_lbfgs_gets_its_loss_back():
    def run(prepare, backward):
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1)
        model, optimizer = prepare(model, optimizer)
        inputs = torch.randn(20, 3)

        def closure():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
            backward(loss)
            return loss

        return [optimizer.step(closure).item() for _ in range(4)]

    accelerator = Accelerator(cpu=True)
    assert run(accelerator.prepare, accelerator.backward) == run(lambda *parts: parts, lambda loss: loss.backward())


def test_the_forward_of_a_model_in_full_precision_is_not_wrapped():
    model = nn.Linear(2, 2)
    prepared = Accelerator(cpu=True).prepare(model)
    assert prepared is model
    assert type(prepared) is nn.Linear
    assert "forward" not in vars(prepared)


def test_batches_on_the_cpu_are_the_loaders_own_tensors():
    batches = [torch.ones(2), torch.zeros(2)]
    loader = Accelerator(cpu=True).prepare(DataLoader(batches, batch_size=None, collate_fn=lambda item: item))
    assert [batch is plain for batch, plain in zip(loader, batches)] == [True, True]


def test_a_deep_copy_of_a_prepared_model_runs_on_its_own_weights():
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    model = accelerator.prepare(nn.Linear(2, 2))
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.weight.zero_()
        twin.bias.zero_()
    inputs = torch.ones(1, 2)
    assert torch.equal(twin(inputs), torch.zeros(1, 2))
    assert not torch.equal(model(inputs), torch.zeros(1, 2))


def test_a_loader_of_ones_own_class_keeps_its_iteration():
    class Doubled(DataLoader):
        def __iter__(self):
            return (2 * batch[0] for batch in super().__iter__())

    loader = Accelerator(cpu=True).prepare(Doubled(TensorDataset(torch.arange(4)), 2))
    assert [batch.tolist() for batch in loader] == [[0, 2], [4, 6]]
    assert isinstance(loader, Doubled)
    assert (len(loader), loader.batch_size, len(loader.dataset)) == (2, 2, 4)
