"""Under data parallel the prepared model is the model: whatever made the loss, what is stepped is averaged."""

import copy
import io
import pickle
import warnings
import weakref

import pytest
import torch
from accel_runtime import Accelerator, DistributedDataParallelKwargs
from accel_runtime.errors import UsageError
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.distributed.ways import CALLED, UNCALLED, Coder, assert_alike, trained
from tests.distributed.worlds import gone, in_world


@pytest.mark.parametrize("steps", [1, 2], ids=["each step", "accumulated"])
def test_the_loss_may_be_made_in_any_way(steps):
    def work():
        return [trained(Accelerator(gradient_accumulation_steps=steps), way) for way in (*CALLED, *UNCALLED)]

    for reference, *each in zip(work(), *in_world(2, work), strict=True):
        assert_alike(reference, each)


def test_the_prepared_model_is_the_model():
    def work():
        accelerator = Accelerator()
        model = Coder()
        names, kind, attributes = list(model.state_dict()), type(model), set(vars(model))
        prepared = accelerator.prepare(model)
        accelerator.backward(prepared(torch.ones(2, 3)).mean())
        copied, pickled = copy.deepcopy(prepared), pickle.loads(pickle.dumps(prepared))
        file = io.BytesIO()
        torch.save(prepared, file)
        file.seek(0)
        return [
            prepared is model,
            accelerator.unwrap_model(prepared) is model,
            type(prepared) is kind,
            set(vars(prepared)) - attributes,
            *(
                list(each.state_dict()) == names
                for each in (prepared, copied, pickled, torch.load(file, weights_only=False))
            ),
        ]

    for seen in in_world(2, work):
        assert seen == [True, True, True, {"_is_accelerate_prepared"}, True, True, True, True]


def test_a_copy_trains_on_its_own():
    def work():
        accelerator = Accelerator()
        model = accelerator.prepare(nn.Linear(1, 1, bias=False))
        other = copy.deepcopy(model)
        if accelerator.is_main_process:  # nobody answers
            other(torch.ones(1, 1)).sum().backward()
        return other.weight.grad is not None

    assert in_world(2, work) == [True, False]


def test_running_statistics_are_those_of_process_0_though_nobody_called_the_model():
    def work():
        torch.manual_seed(2)
        accelerator = Accelerator()
        layer, norm = accelerator.prepare(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
        for step in range(2):
            x = torch.full((4, 3), 1.0 + accelerator.process_index) * torch.arange(4.0)[:, None].add(step)
            accelerator.backward(norm(layer(x)).pow(3).mean())
        return norm.running_mean.tolist(), norm.running_var.tolist(), norm.num_batches_tracked.item()

    first, second = in_world(2, work)
    assert first == second
    assert first[2] == 2


def test_running_statistics_stay_apart_where_that_is_asked_for():
    def work():
        accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)])
        model = accelerator.prepare(nn.BatchNorm1d(1))
        accelerator.backward(model(torch.tensor([[0.0], [1.0 + accelerator.process_index]])).sum())
        return model.running_mean.item()

    assert in_world(2, work) == pytest.approx([0.05, 0.1])


@pytest.mark.parametrize("mode", [True, False], ids=["train", "eval"])
def test_a_forward_pass_on_one_process_waits_for_nobody(mode):
    def work():
        accelerator = Accelerator()
        model = accelerator.prepare(nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1)))
        model.train(mode)
        accelerator.backward(model(torch.arange(4.0)[:, None]).sum())
        if accelerator.is_main_process:
            model(torch.arange(4.0)[:, None])
        accelerator.backward(model(torch.arange(4.0)[:, None]).sum())
        return [weight.grad.tolist() for weight in model.parameters()]

    first, second = in_world(2, work)
    assert first == second


class Center(nn.Module):
    """A criterion that has a weight."""

    def __init__(self, rank):
        super().__init__()
        self.center = nn.Parameter(torch.full((1,), 1.0 + rank))

    def forward(self, outputs):
        return (outputs - self.center).pow(2).mean()


def weights_with_a_criterion(prepares_model):
    torch.manual_seed(3)
    accelerator = Accelerator()
    model, criterion = nn.Linear(1, 1), Center(accelerator.process_index)
    optimizer = torch.optim.SGD([*model.parameters(), *criterion.parameters()], lr=0.1)
    optimizer = accelerator.prepare(optimizer)  # before the model, if at all
    if prepares_model:
        accelerator.prepare(model)
    for step in range(3):
        x = torch.arange(4.0)[accelerator.process_index :: accelerator.num_processes, None] + step
        optimizer.zero_grad()
        accelerator.backward(criterion(model(x)))
        optimizer.step()
    return [weight.tolist() for weight in (*model.parameters(), *criterion.parameters())]


@pytest.mark.parametrize("prepares_model", [True, False], ids=["with the model", "the optimizer alone"])
def test_weights_of_a_prepared_optimizer_are_averaged_without_their_model(prepares_model):
    assert_alike(
        weights_with_a_criterion(prepares_model), in_world(2, lambda: weights_with_a_criterion(prepares_model))
    )


def test_weights_that_an_optimizer_gets_later_must_be_those_of_a_prepared_model():
    def work():
        accelerator = Accelerator()
        model, late = nn.Linear(1, 1), nn.Parameter(torch.ones(1))
        first, second = model.parameters()
        model, optimizer = accelerator.prepare(model, torch.optim.SGD([first], lr=0.1))
        accelerator.backward(model(torch.ones(1, 1)).sum())
        optimizer.add_param_group({"params": [second]})
        accelerator.backward(model(torch.full((1, 1), 1.0 + accelerator.process_index)).sum())
        optimizer.add_param_group({"params": [late]})
        with pytest.raises(UsageError, match="pass their model to prepare"):
            accelerator.backward((model(torch.ones(1, 1)) * late).sum())
        return first.grad.item()

    assert in_world(2, work) == [2.5, 2.5]


def test_a_model_whose_optimizer_was_not_prepared_either_is_refused():
    def work():
        accelerator = Accelerator()
        model = accelerator.prepare(nn.Linear(2, 2))
        forgotten = nn.Linear(2, 5)
        optimizer = torch.optim.SGD(forgotten.parameters(), lr=0.1)
        with pytest.raises(UsageError) as raised:
            accelerator.backward(forgotten(model(torch.ones(1, 2))).sum())
        return str(raised.value), len(optimizer.param_groups)

    for said, _ in in_world(2, work):
        assert said.startswith("the loss trains 2 weights of shape (5, 2), (5,)") or "(5,), (5, 2)" in said
        assert "SGD steps" in said
        assert "pass their model to prepare()" in said


def test_going_on_with_what_free_memory_has_forgotten_is_refused():
    def work():
        accelerator = Accelerator()
        model = nn.Linear(1, 1)
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        accelerator.backward(model(torch.ones(1, 1)).sum())
        accelerator.free_memory()
        with pytest.raises(UsageError, match="the loss trains 2 weights"):
            accelerator.backward(model(torch.ones(1, 1)).sum())
        model, optimizer = accelerator.prepare(model, optimizer)
        accelerator.backward(model(torch.full((1, 1), 1.0 + accelerator.process_index)).sum())
        return model.weight.grad.item()

    first, second = in_world(2, work)
    assert first == second


def test_weights_that_no_optimizer_steps_are_only_named_and_inputs_not_even_that():
    def work():
        accelerator = Accelerator()
        model = accelerator.prepare(nn.Linear(2, 2))
        features, images = nn.Linear(2, 2), torch.ones(1, 2, requires_grad=True)
        said = []
        for loss in (model(images).sum(), features(model(images)).sum(), features(model(images)).sum()):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                accelerator.prepare(nn.Linear(1, 1)) if len(said) == 1 else None  # which makes it look again
                accelerator.backward(loss)
            said.append([str(one.message)[:33] for one in caught])
        return said

    assert in_world(2, work) == [[[], ["the loss trains 2 weights of shap"], []]] * 2


def test_a_raw_backward_pass_is_refused_where_its_gradients_differ():
    def work():
        accelerator = Accelerator()
        model = nn.Linear(1, 1)
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()  # the same on all
        model(torch.full((1, 1), 1.0 + accelerator.process_index)).sum().backward()
        with pytest.raises(UsageError, match=r"call accelerator.backward\(loss\), not loss.backward\(\)"):
            optimizer.step()

    in_world(2, work)


def stepped_with_a_closure(raw):
    accelerator = Accelerator()
    model = nn.Linear(1, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def closure():
        loss = model(torch.full((1, 1), 1.0 + accelerator.process_index)).sum()
        loss.backward() if raw else accelerator.backward(loss)
        return loss

    optimizer.step(closure)
    return model.weight.grad.item()


def test_a_closure_must_go_backward_by_the_accelerator():
    assert in_world(2, lambda: stepped_with_a_closure(raw=False)) == [1.5, 1.5]
    with pytest.raises(AssertionError, match="the closure of SGD"):
        in_world(2, lambda: stepped_with_a_closure(raw=True))


def test_a_loss_that_has_a_part_of_a_model_on_one_process_only():
    """In either order, and with statistics: no message of one model meets that of another."""

    def work():
        torch.manual_seed(4)
        accelerator = Accelerator()
        size, rank = accelerator.num_processes, accelerator.process_index
        models = [nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)) for _ in range(3)]
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
        models, optimizers = accelerator.prepare(*models), accelerator.prepare(*optimizers)
        seen = []
        for step in range(4):
            ranks = range(2) if size == 1 else [rank]
            losses = []
            for each in ranks:
                x = torch.arange(4.0).reshape(2, 2).add(each + step).sin()
                chosen = [models[0], models[1]] if (each + step) % 2 else [models[0]]
                for model in chosen[:: 1 if each else -1]:
                    x = model[0](x)
                losses.append(x.pow(2).mean())
            accelerator.backward(sum(losses) / len(losses))
            seen.append([[w.grad is not None for w in model.parameters()] for model in models])
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        return [weight.tolist() for model in models for weight in model.parameters()], seen

    reference, results = work(), in_world(2, work)
    assert_alike(reference[0], [weights for weights, _ in results])
    assert [seen for _, seen in results] == [reference[1]] * 2


class Skipping(nn.Module):
    """Layers of one size, of which a call leaves some out."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

    def forward(self, x, left_out):
        for number, layer in enumerate(self.layers):
            if number != left_out:
                x = layer(x)
        return x


def test_models_of_one_loss_that_leave_out_other_layers_on_each_process():
    """Messages of equal sizes: taken for each other, they would be averaged without an error."""

    def work():
        torch.manual_seed(4)
        accelerator = Accelerator()
        encoder, decoder = accelerator.prepare(Skipping(), Skipping())
        ranks = range(2) if accelerator.num_processes == 1 else [accelerator.process_index]
        for _ in range(3):
            encoder.zero_grad()
            decoder.zero_grad()
            x = torch.arange(4.0).reshape(2, 2).sin()
            losses = [decoder(encoder(x + rank, None), 2 if rank else None).pow(2).mean() for rank in ranks]
            accelerator.backward(sum(losses) / len(losses))
        return [weight.grad.tolist() for model in (encoder, decoder) for weight in model.parameters()]

    assert_alike(work(), in_world(2, work))


def test_a_model_without_a_part_costs_no_message_of_its_gradients():
    def work():
        accelerator = Accelerator()
        generator, critic = accelerator.prepare(nn.Linear(2, 2), nn.Linear(2, 1))
        calls = []
        for exchange in accelerator._session.strategy.exchanges.all:
            exchange.register_comm_hook(calls, _counted)
        accelerator.backward(critic(generator(torch.ones(1, 2)).detach()).sum())
        return len(calls), generator.weight.grad is None

    assert in_world(2, work) == [(1, True)] * 2


def _counted(calls, bucket):
    calls.append(bucket)
    return torch.distributed.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])


class Twice(nn.Module):
    """A layer that runs again in two backward passes inside of one, which gives it two gradients there."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        for _ in range(2):
            x = checkpoint(self.layer, x.requires_grad_(), use_reentrant=True)
        return x


def test_a_static_graph_may_have_several_gradients_of_a_weight():
    def work():
        torch.manual_seed(5)
        accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(static_graph=True)])
        model = accelerator.prepare(Twice())
        for _ in range(2):
            model.zero_grad()
            x = torch.arange(4.0).reshape(2, 2)[accelerator.process_index :: accelerator.num_processes]
            accelerator.backward(model(x.clone()).pow(2).mean())
        return [weight.grad.tolist() for weight in model.parameters()]

    assert_alike(work(), in_world(2, work))


def test_processes_that_run_out_of_batches_train_as_the_others_do():
    """With a criterion that has weights, statistics, and gradients left from the last step; process 0 runs out first."""

    def work():
        torch.manual_seed(6)
        accelerator = Accelerator()
        model, criterion = nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2)), Center(0)
        optimizer = torch.optim.SGD([*model.parameters(), *criterion.parameters()], lr=0.1)
        model, optimizer = accelerator.prepare(model, optimizer)
        alone = accelerator.num_processes == 1
        with accelerator.join_uneven_inputs([model]):
            for step in range(3 if alone else 2 + accelerator.process_index):
                optimizer.zero_grad()
                loss = criterion(model(torch.arange(4.0)[:, None] * (1 + step)))
                accelerator.backward(loss / 2 if alone and step == 2 else loss)  # of two, one has nothing to add
                optimizer.step()
        return [tensor.tolist() for tensor in (*model.parameters(), *model.buffers(), *criterion.parameters())]

    assert_alike(work(), in_world(2, work))


def test_memory_is_free_once_the_model_is_forgotten():
    def work():
        accelerator = Accelerator()
        model = Coder()
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        accelerator.backward(model(torch.ones(2, 3)).sum())
        optimizer.step()
        known = weakref.ref(model), weakref.ref(model.encoder.weight)
        model, optimizer = accelerator.free_memory(model, optimizer)
        return gone(*known)

    assert in_world(2, work) == [True, True]


def fitted_code(own=False):
    """A plain tensor that is fitted to data of which each process has a part."""
    torch.manual_seed(1)
    accelerator = Accelerator(cpu=True)
    code = torch.randn(3) + (accelerator.process_index if own else 0)
    code.requires_grad_()
    optimizer = accelerator.prepare(torch.optim.Adam([code], lr=0.1))
    for batch in torch.arange(36.0).reshape(3, 4, 3).sin():
        x = batch[accelerator.process_index :: accelerator.num_processes]
        accelerator.backward((x - code).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()
    return code.tolist()


def test_a_plain_tensor_that_a_prepared_optimizer_steps_is_averaged_as_weights_are():
    first, other = in_world(2, fitted_code)
    assert first == other
    assert first == pytest.approx(fitted_code(), abs=1e-6)


def test_a_plain_tensor_that_is_each_process_s_own_is_refused_in_one_sentence():
    def refused():
        with pytest.raises(UsageError, match=r"a tensor of shape \(3,\) that differs from process to process"):
            fitted_code(own=True)

    in_world(2, refused)
