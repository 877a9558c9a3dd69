"""What scripts do with sharded weights by hand: right, or stopped with a remedy."""

import copy
import io
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from accel_runtime import Accelerator, FullyShardedDataParallelPlugin, Silent
from accel_runtime.errors import UsageError
from accel_runtime.shards import in_parts
from torch import nn

from tests.distributed.worlds import in_world
from tests.warm import python


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        return torch.tanh(self.inner(x))


class Net(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(layers))  # each a block, if there are several
        self.norm = nn.LayerNorm(3)
        self.head = nn.Linear(3, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer.forward(x)
        return self.head(self.norm(x))


def sharded(**settings):
    return Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(**settings.pop("plugin", {})), **settings)


def stepped_twice(model, optimizer, backward):
    for scale in (1.0, 2.0):
        optimizer.zero_grad()
        inputs = torch.arange(12.0).reshape(4, 3) * scale
        loss = model.forward(inputs).square().mean() + model.forward(inputs[:2]).mean()
        backward(loss)
        optimizer.step()


@pytest.mark.parametrize("layers", [1, 2])
def test_forward_called_by_name_gathers_as_the_call_does(layers):
    ways = [{}, {"plugin": {"activation_checkpointing": True, "reshard_after_forward": True}}]
    ways += [{"dynamo_backend": "aot_eager"}, {"mixed_precision": "bf16"}]
    ways += [{"dynamo_backend": "aot_eager", "mixed_precision": "bf16"}]

    def work():
        distances = []
        for way in ways:
            torch.manual_seed(0)
            model = Net(layers)
            plain = copy.deepcopy(model)
            reference = torch.optim.SGD(plain.parameters(), lr=0.1)
            stepped_twice(plain, reference, torch.Tensor.backward)
            accelerator = sharded(**copy.deepcopy(way))
            model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
            stepped_twice(model, optimizer, accelerator.backward)
            state = accelerator.get_state_dict(model)
            distances.append(max((state[key] - value).abs().max().item() for key, value in plain.state_dict().items()))
        return distances

    for distances in in_world(2, work):
        for way, distance in zip(ways, distances):
            assert distance < (0.05 if "mixed_precision" in way else 1e-5), way


def test_forward_by_name_goes_on_after_one_that_failed():
    def work():
        accelerator = sharded()
        model = accelerator.prepare(nn.Sequential(nn.Linear(3, 2)))
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            model(torch.ones(1, 5))
        return tuple(model.forward(torch.ones(1, 3)).shape)

    assert in_world(2, work) == [(1, 2)] * 2


def test_a_weight_of_two_models_is_refused_and_a_part_that_was_prepared_is_not():
    class Part(nn.Module):
        def __init__(self, words):
            super().__init__()
            self.words = words
            self.out = nn.Linear(4, 9, bias=False)

        def forward(self, x):
            return self.out(self.words(x))

    def work():
        words = nn.Embedding(9, 4)
        tied = Part(nn.Embedding(9, 4))
        reader, writer = Part(words), Part(words)
        tied.out.weight = reader.out.weight
        accelerator = sharded()
        accelerator.prepare(reader)
        with pytest.raises(UsageError, match=r"words\.weight of Part is a weight of another prepared model too"):
            accelerator.prepare(writer)
        with pytest.raises(UsageError, match=r"out\.weight of Part is a weight of another prepared model too"):
            accelerator.prepare(tied)
        around = accelerator.prepare(nn.Sequential(reader, nn.Linear(9, 1)))
        return tuple(around(torch.zeros(1, 2, dtype=torch.long)).shape)

    assert in_world(2, work) == [(1, 2, 1)] * 2


def test_tensors_made_from_a_weight_are_plain():
    def work():
        accelerator = sharded()
        model = nn.LSTM(3, 4).double()
        model = accelerator.prepare(model)
        weight = next(model.parameters())
        made = weight.new_zeros(1, 2, 4), weight.new_full((1, 2, 4), 0.5)
        output, _ = model(torch.ones(5, 2, 3, dtype=torch.float64), made)
        others = [weight.new(2), weight.new_ones(2), weight.new_empty(2), weight.new_tensor([1.0]), *made]
        assert {(type(one), one.device.type) for one in others} == {(torch.Tensor, "cpu")}
        return tuple(output.shape), {str(one.dtype) for one in others}, weight.new_ones(2, dtype=torch.int).dtype

    assert in_world(2, work) == [((5, 2, 4), {"torch.float64"}, torch.int)] * 2


def test_a_number_of_a_sharded_tensor_is_of_the_whole():
    def work():
        accelerator = sharded()
        model = nn.Linear(3, 4)
        plain = copy.deepcopy(model)
        model = accelerator.prepare(model)
        accelerator.backward(model(torch.ones(1, 3)).sum())
        plain(torch.ones(1, 3)).sum().backward()
        ours, theirs = (
            [
                one.weight.norm().item(),
                float(one.weight.sum()),
                int(one.weight.detach().max() * 100),
                f"{one.weight.grad.norm():.4f}",
                bool(one.weight.grad.max() > 0.5),
                one.bias.detach().cpu().numpy().tolist(),
                one.weight.tolist()[3],
                one.weight[0][0].item(),
                np.asarray(one.weight.grad).sum().item(),
            ]
            for one in (model, plain)
        )
        return all(
            # A sum near zero has fewer digits: shards are added up in another order.
            mine == (other if isinstance(other, str) else pytest.approx(other, abs=1e-6))
            for mine, other in zip(ours, theirs)
        )

    assert in_world(1, work) == [True]
    assert in_world(2, work) == [True, True]


def test_a_writer_of_one_process_has_whole_weights_and_gradients():
    class Writer:
        def add_histogram(self, name, values, epoch=0):
            self.values = values.detach().cpu().numpy().tolist()

    def work():
        accelerator = sharded()
        model = accelerator.prepare(nn.Linear(3, 4))
        accelerator.backward(model(torch.ones(1, 3)).sum())
        writer = Writer() if accelerator.is_main_process else Silent()
        writer.add_histogram("weight", model.weight, 1)
        writer.add_histogram("slope", values=model.weight.grad)
        return accelerator.is_main_process and writer.values

    assert in_world(2, work) == [[[1.0] * 3] * 4, False]


def test_a_number_that_one_process_asks_for_alone_is_refused():
    def work():
        accelerator = sharded()
        model = accelerator.prepare(nn.Linear(3, 4))
        with pytest.raises(
            UsageError, match=r"rank 0 is in the numbers of a sharded tensor at .*, rank 1 is in gather at"
        ):
            if accelerator.is_main_process:
                model.weight.sum().item()
            accelerator.gather(torch.ones(1))

    in_world(2, work)


def doubled(weight):
    weight.data = weight.data * 2


def exchanged(weight):
    weight.data = torch.ones(weight.shape)


def written(weight):
    weight.data[0] = 5.0


def one_row(weight):
    weight.data[1].fill_(7.0)


def last_rows(weight):
    weight.detach().narrow(0, 2, 2).mul_(3.0)


def by_rows(weight):
    for row in weight.data:
        row.div_(row.norm())


def masked(weight):
    weight.data[weight.data > 0] = 0.5


def last_part(weight):
    weight.data.chunk(4)[3].zero_()


def flat(weight):
    weight.data.view(-1)[4] = 9.0


def added(weight):
    weight.data.add_(torch.arange(3.0))


def copied(weight):
    with torch.no_grad():
        weight.copy_(torch.ones(4, 3)).mul_(torch.tensor(0.5))


def limited(weight):
    weight.data.renorm_(2, 0, 0.1)


def drawn(weight):
    torch.manual_seed(3)
    nn.init.normal_(weight)


def drawn_by_name(weight):
    torch.manual_seed(3)
    nn.init.kaiming_uniform_(weight, a=2.0)


def drawn_in_place(weight):
    torch.manual_seed(3)
    weight.data.uniform_(-1, 1).add_(torch.randn_like(weight))


def orthogonal(weight):
    torch.manual_seed(3)
    nn.init.orthogonal_(weight)


def through_a_vector(weight):
    nn.utils.vector_to_parameters(nn.utils.parameters_to_vector([weight]) * 2, [weight])


WRITES = [doubled, exchanged, written, one_row, last_rows, by_rows, masked, last_part, flat, added, copied, limited]
WRITES += [drawn, drawn_by_name, drawn_in_place, orthogonal, through_a_vector]


def test_what_is_written_to_a_sharded_weight_is_written_as_to_a_whole_one():
    def work():
        accelerator = sharded()
        layer = nn.Linear(3, 4)
        plain = copy.deepcopy(layer)
        layer = accelerator.prepare(layer)
        lost = []
        for write in WRITES:
            write(layer.weight)
            write(plain.weight)
            # By what runs, not by what is read.
            with torch.no_grad():
                if not torch.allclose(layer(torch.eye(3)), plain(torch.eye(3)), atol=1e-6):
                    lost.append(write.__name__)
        with pytest.raises(
            UsageError, match=r"got \.data of shape \(4, 3\) and torch\.float64; change the shape or the type"
        ):
            layer.weight.data = plain.weight.data.double()
        return lost

    assert in_world(1, lambda: (torch.manual_seed(0), work())[1]) == [[]]
    assert in_world(2, lambda: (torch.manual_seed(0), work())[1]) == [[], []]


def test_an_average_of_a_sharded_model_is_kept_by_hand():
    def kept(model, average, gradients):
        for mine, new in zip(average.parameters(), model.parameters()):
            mine.data.mul_(0.9).add_(new.data, alpha=0.1)
            mine.data = 0.5 * mine.data + 0.5 * new.data
        torch._foreach_lerp_([one.detach() for one in average.parameters()], list(model.parameters()), 0.1)
        for name, value in average.state_dict().items():
            value.copy_(value * 0.5 + model.state_dict()[name] * 0.5)
        gradients += [new.grad - mine.detach() for mine, new in zip(average.parameters(), model.parameters())]

    def work():
        accelerator = sharded()
        model, average = nn.Linear(3, 4), nn.Linear(3, 4)
        plain, other = copy.deepcopy(model), copy.deepcopy(average)
        model = accelerator.prepare(model)
        accelerator.backward(model(torch.ones(2, 3)).sum())
        plain(torch.ones(2, 3)).sum().backward()
        ours, theirs = [], []
        kept(model, average, ours)
        with torch.no_grad():
            kept(plain, other, theirs)
        same = [torch.allclose(one, two) for one, two in zip(average.parameters(), other.parameters())]
        return all(same), all(torch.allclose(one, two) for one, two in zip(ours, theirs)), type(ours[0])

    assert in_world(2, lambda: (torch.manual_seed(0), work())[1]) == [(True, True, torch.Tensor)] * 2


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Net()
        self.decoder = nn.LSTM(1, 3)
        self.scale = nn.Parameter(torch.full((3,), 2.0))

    def forward(self, x):
        return self.decode(self.encoder(x))

    def decode(self, code):
        return self.decoder(code.unsqueeze(0))[0][0] * self.scale

    def encode(self, x):
        return self.encoder.head(self.encoder.layers[1](x))


def as_on_one_process(build, trained, tolerance):
    """Whether a sharded model that is trained on its part of the inputs ends where the whole one does, with outputs as many."""
    torch.manual_seed(0)
    model = build()
    plain = copy.deepcopy(model)
    inputs = torch.randn(8, 3)
    accelerator = sharded()
    mine = inputs.chunk(accelerator.num_processes)[accelerator.process_index]
    expected = trained(plain, torch.Tensor.backward, torch.optim.SGD(plain.parameters(), lr=0.1), inputs)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    seen = accelerator.gather(trained(model, accelerator.backward, optimizer, mine))
    state = accelerator.get_state_dict(model)
    distance = max((state[key] - value).abs().max().item() for key, value in plain.state_dict().items())
    return distance < tolerance, seen.shape == expected.shape


class Rated(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x):
        return self.layer(x)

    def cost(self, x):
        return self.layer(x).square().mean()


def test_steps_on_weights_that_a_forward_left_gathered_do_not_add_up():
    def trained(model, backward, optimizer, inputs):
        for _ in range(3):
            model(inputs)
            loss = model.cost(inputs)
            optimizer.zero_grad()
            backward(loss)
            optimizer.step()
        return model(inputs).detach()

    assert in_world(2, lambda: as_on_one_process(Rated, trained, 1e-6)) == [(True, True)] * 2


@pytest.mark.parametrize("warm", [False, True])
def test_layers_that_run_past_the_forward_train_as_on_one_process(warm):
    def trained(model, backward, optimizer, inputs):
        for step in range(4):
            optimizer.zero_grad()
            if warm:
                model(inputs)  # leaves weights gathered, and none of it goes into the loss
            if step == 2:
                with torch.no_grad():
                    inputs = inputs + model.decode(model.encode(inputs))
            code = model.encode(inputs)
            loss = model.decode(code).square().mean() + 0.1 * sum(one.norm() for one in model.parameters())
            backward(loss)
            optimizer.step()
        return model(inputs).detach()

    assert in_world(2, lambda: as_on_one_process(Coder, trained, 1e-5)) == [(True, True)] * 2


def nothing(*_):
    pass


def test_a_copy_of_a_sharded_model_is_whole_and_plain():
    def work():
        for way in ({}, {"mixed_precision": "bf16"}, {"plugin": {"activation_checkpointing": True}}):
            accelerator = sharded(**way)
            model = Net()
            model.layers[0].register_forward_hook(nothing)
            plain = copy.deepcopy(model)
            model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
            inputs = torch.ones(2, 3)
            accelerator.backward(model(inputs).sum())
            best = copy.deepcopy(model)
            part = copy.deepcopy(model.layers[0])
            optimizer.step()
            assert type(best) is Net and type(best.layers[0]) is type(part) is Layer
            assert {type(weight) for weight in (*best.parameters(), *part.parameters())} == {nn.Parameter}
            assert [len(one._forward_hooks) for one in best.modules()] == [
                len(one._forward_hooks) for one in plain.modules()
            ]
            assert torch.allclose(best(inputs), plain(inputs))
            assert torch.allclose(part(inputs), plain.layers[0](inputs))
            torch.save(best, io.BytesIO())
            optimizer.zero_grad()
            best(inputs).sum().backward()
            assert all(weight.grad is None for weight in model.parameters())
            average = torch.optim.swa_utils.AveragedModel(model)
            average.update_parameters(model)
            assert not torch.equal(average.module.head.bias, plain.head.bias)
            again = accelerator.prepare(best)
            assert in_parts(again)
        return True

    assert in_world(2, work) == [True] * 2


@pytest.mark.parametrize("build", [Net, lambda: nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 1))])
def test_gradient_hooks_run_as_on_one_process_with_a_gradient_of_its_own(build):
    def trained(model, prepare, backward):
        seen = []
        first, *_, last = model.parameters()
        removed = first.register_hook(lambda gradient: gradient * 0)
        early = last.register_hook(lambda gradient: gradient.clamp(max=0.1))
        last.register_post_accumulate_grad_hook(lambda weight: seen.append(weight.shape))
        removed.remove()
        model, optimizer = prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        first, second, *_, last = model.parameters()
        second.register_hook(lambda gradient: seen.append(type(gradient)))
        first.register_hook(lambda gradient: gradient.clamp(max=0.05))
        for step in range(3):
            optimizer.zero_grad()
            backward(model(torch.ones(2, 3)).square().mean())
            optimizer.step()
            if step:
                early.remove()
        copy.deepcopy(model)
        return model, seen

    def work():
        model = build()
        plain, expected = trained(copy.deepcopy(model), lambda *things: things, torch.Tensor.backward)
        accelerator = sharded()
        model, seen = trained(model, accelerator.prepare, accelerator.backward)
        state = accelerator.get_state_dict(model)
        same = all(torch.allclose(state[name], value, atol=1e-6) for name, value in plain.state_dict().items())
        return same, sorted(map(str, seen)) == sorted(map(str, expected))

    assert in_world(2, lambda: (torch.manual_seed(0), work())[1]) == [(True, True)] * 2


def test_a_sharded_tensor_in_a_file_is_refused():
    def work():
        model = sharded().prepare(nn.Linear(3, 4))
        for value in (model.state_dict(), list(model.parameters()), model.weight.data):
            with pytest.raises(UsageError, match="would be written as the part of one process"):
                torch.save(value, io.BytesIO())
        return True

    assert in_world(2, work) == [True] * 2


SCRIPT = """
import sys
import torch
from torch import nn
from accel_runtime import Accelerator, notebook_launcher

def main():
    accelerator = Accelerator()
    model = nn.Linear(3, 2)
    model = accelerator.prepare(model)
    if sys.argv[1] == "penalty":
        x = torch.ones(2, 3, requires_grad=True)
        net = accelerator.prepare(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)))
        gradient, = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        accelerator.backward(gradient.norm())
    raise ValueError("nothing of weights")

if __name__ == "__main__":
    notebook_launcher(main, num_processes=2) if len(sys.argv) > 2 else main()
"""
LAUNCH = ["-m", "accel_runtime", "launch", "--cpu", "--strategy", "fsdp", "--num-processes", "2"]


def said(folder: Path, *command: str) -> str:
    (folder / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "ACCEL_STRATEGY": "fsdp", "ACCEL_CPU": "true"}
    done = subprocess.run(
        [python(), *command], cwd=folder, capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    assert done.returncode == 1, done.stderr
    return done.stderr


REMEDY = "Under strategy fsdp each process holds a part of every weight"


def test_what_torch_says_of_shards_has_its_remedy_in_the_traceback_and_the_digest(tmp_path):
    told = said(tmp_path, *LAUNCH, "script.py", "penalty")
    trace, _, digest = told.partition("accel launch: rank")
    first = digest.splitlines()[0]
    assert "failed first: RuntimeError: " in first and REMEDY in first and "get_state_dict(model)" in first
    assert 1 <= trace.count(REMEDY) == trace.count("Traceback (most recent call last)")


def test_other_failures_have_none_and_functions_that_were_launched_have_it_too(tmp_path):
    assert REMEDY not in said(tmp_path, *LAUNCH, "script.py", "other")
    assert REMEDY in said(tmp_path, "script.py", "penalty", "launched")


def test_a_list_of_weights_from_before_prepare_means_the_sharded_ones():
    def work():
        accelerator = sharded()
        model = Net()
        early = list(model.parameters())
        before = [weight.detach().clone() for weight in early]
        forgotten = torch.optim.Adam(early[:2], lr=0.1)
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        accelerator.backward(model(torch.ones(2, 3)).sum())
        early[-1].requires_grad = False
        gradients = [weight.grad is late.grad for weight, late in zip(early, model.parameters())]
        optimizer.step()
        forgotten.step()
        state = accelerator.get_state_dict(model)
        same = [torch.equal(weight.full_tensor(), now) for weight, now in zip(early, state.values())]
        moved = [not torch.equal(was, now) for was, now in zip(before, state.values())]
        with pytest.raises(UsageError, match=r"with \['weights'\]\[0\] that is sharded"):
            accelerator.save({"weights": early}, "weights.pt")
        return all(gradients), all(same), all(moved), model.head.bias.requires_grad

    assert in_world(2, work) == [(True, True, True, False)] * 2


@pytest.mark.parametrize("build", [lambda: nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 1)), Net])
def test_a_penalty_over_a_list_from_before_prepare_trains_them_as_on_one_process(build):
    def trained(model, backward, optimizer, early):
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 3)).square().mean()
            backward(loss + 0.5 * sum(weight.square().sum() for weight in early))
            optimizer.step()

    def work():
        plain = build()
        model = copy.deepcopy(plain)
        trained(plain, torch.Tensor.backward, torch.optim.SGD(plain.parameters(), lr=0.1), list(plain.parameters()))
        accelerator = sharded()
        early = list(model.parameters())
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        trained(model, accelerator.backward, optimizer, early)
        state = accelerator.get_state_dict(model)
        return all(torch.allclose(state[name], value, atol=1e-6) for name, value in plain.state_dict().items())

    assert in_world(2, lambda: (torch.manual_seed(0), work())[1]) == [True] * 2


def test_a_move_to_where_a_sharded_model_is_changes_nothing():
    def work():
        accelerator = sharded()
        model = Net()
        early = list(model.parameters())
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        weights = list(model.parameters())
        for _ in range(2):
            assert model.to(accelerator.device) is model and model.cpu() is model and model.float() is model
            assert model.layers[0].to(accelerator.device) is model.layers[0]
            accelerator.backward(model(torch.ones(2, 3)).sum())
            optimizer.step()
        assert len(early) == len(weights)
        return all(one is other for one, other in zip(weights, model.parameters()))

    assert in_world(2, work) == [True] * 2
