"""What scripts do with sharded weights by hand: right, or stopped with a remedy."""

import copy
import os
import subprocess
from pathlib import Path

import pytest
import torch
from accel_runtime import Accelerator, FullyShardedDataParallelPlugin
from accel_runtime.errors import UsageError
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


def test_a_number_of_this_process_s_part_alone_is_refused():
    def work():
        accelerator = sharded()
        model = nn.Linear(3, 4)
        plain = copy.deepcopy(model)
        model = accelerator.prepare(model)
        accelerator.backward(model(torch.ones(1, 3)).sum())
        parts = [model.weight.norm(), model.weight.sum(), model.weight.detach().max(), model.weight.grad.norm()]
        for part in parts:
            for number in (lambda one: one.item(), float, int):
                with pytest.raises(UsageError, match=r"a number is taken .* accelerator\.clip_grad_norm_ returns"):
                    number(part)
        return parts[0].full_tensor().item() == pytest.approx(plain.weight.norm().item()), model.weight[0][0].item()

    assert in_world(1, lambda: sharded().prepare(nn.Linear(2, 2)).weight.new_ones(1).item()) == [1.0]
    (first, one), (second, other) = in_world(2, work)
    assert first and second and one == other


SCRIPT = """
import sys
import torch
from torch import nn
from accel_runtime import Accelerator, notebook_launcher

def main():
    accelerator = Accelerator()
    model = nn.Linear(3, 2)
    target = nn.Linear(3, 2)
    model = accelerator.prepare(model)
    if sys.argv[1] == "read":
        model.weight.detach().cpu().numpy()
    if sys.argv[1] == "mix":
        for mine, other in zip(target.parameters(), model.parameters()):
            mine.data.copy_(other.data)
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


@pytest.mark.parametrize("mistake", ["read", "mix", "penalty"])
def test_what_torch_says_of_shards_has_its_remedy_in_the_traceback_and_the_digest(mistake, tmp_path):
    told = said(tmp_path, *LAUNCH, "script.py", mistake)
    trace, _, digest = told.partition("accel launch: rank")
    first = digest.splitlines()[0]
    assert "failed first: RuntimeError: " in first and REMEDY in first and "get_state_dict(model)" in first
    assert 1 <= trace.count(REMEDY) == trace.count("Traceback (most recent call last)")


def test_other_failures_have_none_and_functions_that_were_launched_have_it_too(tmp_path):
    assert REMEDY not in said(tmp_path, *LAUNCH, "script.py", "other")
    assert REMEDY in said(tmp_path, "script.py", "read", "launched")


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


def test_a_penalty_over_a_list_from_before_prepare_trains_them_as_on_one_process_or_is_stopped():
    def trained(model, backward, optimizer, early):
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 3)).square().mean()
            backward(loss + 0.5 * sum(weight.square().sum() for weight in early))
            optimizer.step()

    def work():
        plain = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 1))
        model = copy.deepcopy(plain)
        trained(plain, torch.Tensor.backward, torch.optim.SGD(plain.parameters(), lr=0.1), list(plain.parameters()))
        accelerator = sharded()
        early = list(model.parameters())
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        trained(model, accelerator.backward, optimizer, early)
        state = accelerator.get_state_dict(model)
        parts = Net()
        early = list(parts.parameters())
        parts, optimizer = accelerator.prepare(parts, torch.optim.SGD(parts.parameters(), lr=0.1))
        with pytest.raises(RuntimeError, match=r"mixed torch\.Tensor and DTensor"):
            trained(parts, accelerator.backward, optimizer, early)
        return all(torch.allclose(state[name], value) for name, value in plain.state_dict().items())

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
