"""Losses of which torch's DDP takes only the plainest: weights without a part in them, and several of one forward pass."""

import pytest
import torch
from accel_runtime import Accelerator
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.distributed.worlds import in_world

STEPS = 4


class Heads(nn.Module):
    """One body; its heads are the ways in which losses have a part of it, or none."""

    def __init__(self):
        super().__init__()
        self.body, self.left, self.right, self.spare = (nn.Linear(3, 3) for _ in range(4))

    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        return self.left(hidden), self.right(hidden)


def both(model, x, step, backward):
    """All but the spare layer, which nothing computes with."""
    left, right = model(x)
    backward((left + right).pow(2).mean())


def dropped(model, x, step, backward):
    backward(model(x)[0].pow(2).mean())


def cut_off(model, x, step, backward):
    left, right = model(x)
    backward((left + right.detach()).pow(2).mean())


def by_turns(model, x, step, backward):
    backward(model(x)[step % 2].pow(2).mean())


def less_later(model, x, step, backward):
    """Optimizers leave a weight without a gradient alone, and go on moving one whose gradient is zero."""
    (both if step < 2 else dropped)(model, x, step, backward)


def one_after_the_other(model, x, step, backward):
    left, right = model(x)
    backward(left.pow(2).mean(), retain_graph=True)
    backward(right.pow(2).mean())


def same_twice(model, x, step, backward):
    left, right = model(x)
    backward((left + right).pow(2).mean(), retain_graph=True)
    backward((left * right).mean())


def two_passes(model, x, step, backward):
    first, second = model(x), model(x + 1)
    backward(sum(first).pow(2).mean())
    backward(sum(second).pow(2).mean())


def compared(model, x, step, backward):
    """Two forward passes in one loss, of which the last has less."""
    (left, right), (other, _) = model(x), model(-x)
    backward((left + right - other).pow(2).mean())


WAYS = [both, dropped, cut_off, by_turns, less_later, one_after_the_other, same_twice, two_passes, compared]


def trained(way, spare=True, **settings):
    """The weights after some steps, each process with its part of the data."""
    torch.manual_seed(3)
    accelerator = Accelerator(**settings)
    model = Heads()
    if not spare:
        del model.spare
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    data = torch.arange(STEPS * 12.0).reshape(STEPS, 4, 3).sin()
    model, optimizer = accelerator.prepare(model, optimizer)
    for step in range(STEPS):
        x = data[step][accelerator.process_index :: accelerator.num_processes]
        with accelerator.accumulate(model):
            way(model, x, step, accelerator.backward)
            optimizer.step()
            optimizer.zero_grad()
    return [weight.tolist() for weight in accelerator.unwrap_model(model).parameters()]


def assert_alike(reference, results):
    for weights in results:
        assert weights == results[0]
        for one, other in zip(reference, weights, strict=True):
            assert torch.allclose(torch.tensor(one), torch.tensor(other), atol=1e-5)


@pytest.mark.parametrize("spare", [True, False], ids=["with a spare layer", "without"])
def test_many_processes_train_as_one_whatever_the_loss_is_computed_from(spare):
    results = in_world(2, lambda: [trained(way, spare) for way in WAYS])
    for way, *each in zip(WAYS, *results):
        assert_alike(trained(way, spare), each)


def test_also_while_gradients_are_accumulated():
    results = in_world(2, lambda: [trained(way, gradient_accumulation_steps=2) for way in WAYS])
    for way, *each in zip(WAYS, *results):
        assert_alike(trained(way, gradient_accumulation_steps=2), each)


def other_on_each(model, x, step, backward):
    """What the batch is decides which head has a part: on the first process another than on the second."""
    backward(model(x)[int(x[0, 0] > 0)].pow(2).mean())


def test_processes_whose_losses_have_other_parts():
    def work():
        torch.manual_seed(3)
        accelerator = Accelerator()
        model = accelerator.prepare(Heads())
        sign = 1 - 2 * accelerator.process_index
        for _ in range(2):
            model.zero_grad()
            other_on_each(model, sign * torch.ones(2, 3), 0, accelerator.backward)
        bare = accelerator.unwrap_model(model)
        return {
            name: weight.grad is not None for name, weight in bare.named_parameters()
        }, bare.body.weight.grad.tolist()

    (first, gradient), (second, other) = in_world(2, work)
    assert first == second
    assert first["left.weight"]
    assert first["right.weight"]
    assert not first["spare.weight"]
    assert gradient == other


def test_a_generator_and_its_critic():
    """The critic's loss stops before the generator, whose one pass is in two losses."""

    def work():
        torch.manual_seed(5)
        accelerator = Accelerator()
        generator, critic = nn.ModuleDict({"a": nn.Linear(2, 2), "spare": nn.Linear(2, 2)}), nn.Linear(2, 1)
        generator.forward = lambda x: generator["a"](x)
        optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (generator, critic)]
        generator, critic, *optimizers = accelerator.prepare(generator, critic, *optimizers)
        for step in range(STEPS):
            noise = (
                torch.arange(8.0).reshape(4, 2).add(step).cos()[accelerator.process_index :: accelerator.num_processes]
            )
            fake = generator(noise)
            critic.zero_grad()
            accelerator.backward(critic(fake.detach()).mean())
            optimizers[1].step()
            generator.zero_grad()
            accelerator.backward(-critic(fake).mean())
            optimizers[0].step()
        bare = [accelerator.unwrap_model(each) for each in (generator, critic)]
        return [weight.tolist() for each in bare for weight in each.parameters()]

    assert_alike(work(), in_world(2, work))


class Recomputed(nn.Module):
    """Runs its layers again in the backward pass, by a function that hides their weights."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, x):
        return self.head(checkpoint(self.inner, x.requires_grad_(), use_reentrant=True))


def test_weights_that_a_checkpoint_hides_are_not_taken_for_unused():
    def work():
        torch.manual_seed(3)
        accelerator = Accelerator()
        model = accelerator.prepare(Recomputed())
        for _ in range(2):
            x = torch.arange(12.0).reshape(4, 3)[accelerator.process_index :: accelerator.num_processes]
            model.zero_grad()
            accelerator.backward(model(x.clone()).mean())
        return [weight.grad.tolist() for weight in accelerator.unwrap_model(model).parameters()]

    assert_alike(work(), in_world(2, work))


def test_processes_that_run_out_of_batches():
    def work():
        torch.manual_seed(3)
        accelerator = Accelerator()
        model = accelerator.prepare(Heads())
        both(model, torch.ones(2, 3), 0, accelerator.backward)
        with accelerator.join_uneven_inputs([model]):
            for _ in range(1 + accelerator.process_index):
                model.zero_grad()
                both(model, torch.ones(2, 3), 0, accelerator.backward)
        return accelerator.unwrap_model(model).body.weight.grad is not None

    assert in_world(2, work) == [True, True]


def test_weights_that_are_thawed_and_have_no_part():
    def work():
        torch.manual_seed(3)
        accelerator = Accelerator()
        model = Heads()
        model.spare.requires_grad_(False)
        model = accelerator.prepare(model)
        for step in range(STEPS):
            accelerator.unwrap_model(model).spare.requires_grad_(step > 0)
            model.zero_grad()
            both(model, torch.ones(2, 3), 0, accelerator.backward)
        return accelerator.unwrap_model(model).spare.weight.grad is None

    assert in_world(2, work) == [True, True]


class Tables(nn.Module):
    def __init__(self):
        super().__init__()
        self.sparse, self.dense = nn.Embedding(5, 2, sparse=True), nn.Embedding(5, 2)

    def forward(self, words, step):
        return (self.dense if step % 2 else self.sparse)(words).sum()


def test_tables_with_sparse_gradients_that_have_no_part():
    def work():
        torch.manual_seed(3)
        accelerator = Accelerator()
        model = accelerator.prepare(Tables())
        seen = []
        for step in range(4):
            model.zero_grad()
            accelerator.backward(model(torch.tensor([1, 2 + accelerator.process_index]), step))
            seen.append([weight.grad is not None and weight.grad.to_dense().tolist() for weight in model.parameters()])
        return seen

    rows = [[0, 0], [1, 1], [0.5, 0.5], [0.5, 0.5], [0, 0]]
    assert in_world(2, work) == [[[rows, False], [False, rows]] * 2] * 2
