"""The GPUs that stand in: what fails on a real one fails on them, and what runs there runs."""

import copy
import io
import subprocess
import sys

import numpy
import pytest
import torch
from accel_runtime import Accelerator
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader, TensorDataset

from tests.gpu_stand_in import gpus


@pytest.fixture(autouse=True)
def machine():
    with gpus(2) as found:
        yield found


def test_a_model_and_its_data_on_two_devices_fail():
    model, x = nn.Linear(4, 2).cuda(), torch.randn(3, 4)
    with pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and cpu"):
        model(x)
    with pytest.raises(RuntimeError, match="cuda:1 and cuda:0"):
        model(x.to("cuda:1"))
    assert model(x.to("cuda")).device == torch.device("cuda:0")


@pytest.mark.parametrize(
    "meet",
    [
        lambda gpu, cpu: gpu + cpu,
        lambda gpu, cpu: torch.cat([gpu, cpu]),
        lambda gpu, cpu: nn.functional.mse_loss(gpu, cpu),
        lambda gpu, cpu: cpu[gpu > 0],
        lambda gpu, cpu: gpu.masked_fill(cpu > 0, 0.0),
        lambda gpu, cpu: nn.functional.cross_entropy(gpu, torch.zeros(4).long().cuda(), weight=torch.ones(4)),
        lambda gpu, cpu: nn.Embedding(9, 2).cuda()(torch.tensor([1])),
        lambda gpu, cpu: nn.LSTM(4, 2).cuda()(gpu, (torch.zeros(1, 2), torch.zeros(1, 2))),
        lambda gpu, cpu: gpu.normal_(generator=torch.Generator()),
        lambda gpu, cpu: pack_padded_sequence(gpu[None], torch.tensor([4]).cuda(), batch_first=True),
    ],
)
def test_tensors_of_two_devices_do_not_meet(meet):
    with pytest.raises(RuntimeError, match="cuda"):
        meet(torch.randn(4, 4).cuda(), torch.randn(4, 4))


def test_numpy_reads_the_memory_of_the_cpu_only():
    x = torch.ones(2, device="cuda")
    for read in (lambda: x.numpy(), lambda: numpy.array(x)):
        with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
            read()
    assert x.cpu().numpy().sum() == 2


def test_what_torch_lets_meet_meets():
    x = torch.randn(3, 5, 4).cuda()
    assert (x * torch.tensor(2.0)).is_cuda
    assert x[:, torch.tensor([0, 2])].is_cuda
    packed = pack_padded_sequence(x, torch.tensor([5, 3, 2]), batch_first=True)
    output, _ = nn.LSTM(4, 2, 2, dropout=0.5, batch_first=True).cuda()(packed)
    padded, lengths = pad_packed_sequence(output, batch_first=True)
    padded.sum().backward()
    assert (padded.is_cuda, lengths.is_cuda) == (True, False)


def test_gradients_come_back_to_where_the_weights_are():
    weights = torch.ones(3, requires_grad=True)
    (weights.cuda() * 2).sum().backward()
    assert weights.grad.device.type == "cpu"
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).to("cuda:1")
    model(torch.randn(2, 5, 8, device="cuda:1")).sum().backward()
    assert {p.grad.device for p in model.parameters()} == {torch.device("cuda:1")}
    assert next(copy.deepcopy(model).parameters()).device == torch.device("cuda:1")


def test_a_gpu_draws_from_a_generator_of_its_own():
    torch.manual_seed(0)
    first = torch.randn(3)
    torch.manual_seed(0)
    there, here = torch.randn(3, device="cuda"), torch.randn(3)
    assert torch.equal(first, here)
    assert not torch.equal(first, there.cpu())


def test_a_file_remembers_the_device():
    file = io.BytesIO()
    torch.save(torch.ones(2).to("cuda:1"), file)
    places = []
    for wanted in (None, "cpu", "cuda:0"):
        file.seek(0)
        places.append(str(torch.load(file, map_location=wanted).device))
    assert places == ["cuda:1", "cpu", "cuda:0"]


def test_data_parallel_moves_its_input_and_wants_its_weights_on_the_first():
    model = nn.DataParallel(nn.Linear(4, 1))
    with pytest.raises(RuntimeError, match="must have its parameters and buffers on device cuda:0"):
        model(torch.ones(2, 4))
    assert model.cuda()(torch.ones(2, 4)).is_cuda


def test_the_accelerator_finds_it_and_trains_there():
    accelerator = Accelerator()
    loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.randn(8, 1)), batch_size=4)
    model = nn.Linear(4, 1)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.Adam(model.parameters()), loader)
    for x, y in loader:
        accelerator.backward(nn.functional.mse_loss(model(x), y))
        optimizer.step()
    assert (accelerator.device, x.device, model.weight.device) == (torch.device("cuda:0"),) * 3


def test_the_command_runs_a_script_and_says_where_it_parts(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nprint(torch.cuda.is_available())\ntorch.nn.Linear(2, 1).cuda()(torch.ones(1, 2))\n"
    )
    command = [sys.executable, "-m", "tests.gpu_stand_in", "--gpus", "1", str(script)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "True\n")
    assert "found at least two devices, cuda:0 and cpu" in done.stderr


@pytest.mark.parametrize("kind", [torch.LongTensor, torch.Tensor, "torch.FloatTensor"])
def test_a_cast_to_a_type_of_the_cpu_is_a_move(kind):
    x = torch.ones(2, device="cuda")
    assert not x.type(kind).is_cuda
    assert not x.type_as(torch.ones(1)).is_cuda
    assert x.type(torch.long).is_cuda
    assert x.type(torch.cuda.LongTensor).is_cuda
    assert torch.ones(1).type_as(x).is_cuda
