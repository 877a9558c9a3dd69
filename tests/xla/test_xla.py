"""One XLA device, the CPU of its runtime: trains as the CPU does, and compiles each program once. See `make test-xla`."""

import subprocess
import sys

import pytest
import torch
import torch_xla
from accel_runtime import Accelerator, set_seed
from accel_runtime.devices.xla import Xla
from accel_runtime.support import Standing, cells
from accel_runtime.world import World
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_xla.debug import metrics

STEPS = 12


class Tied(nn.Module):
    """A small language model whose output layer is its embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.block(self.embedding(tokens)))


def tokens(count=STEPS * 4):
    return TensorDataset(torch.randint(16, (count, 6), generator=torch.Generator().manual_seed(1)))


def parts(accelerator, **loader_settings):
    torch.manual_seed(0)
    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=STEPS)
    loader = DataLoader(tokens(), batch_size=4, **loader_settings)
    return accelerator.prepare(model, optimizer, scheduler, loader)


def step(accelerator, model, optimizer, scheduler, batch):
    loss = nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten())
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    return loss.detach()


def losses(accelerator):
    model, optimizer, scheduler, loader = parts(accelerator, shuffle=True)
    kept = [step(accelerator, model, optimizer, scheduler, batch) for (batch,) in loader]
    return [loss.item() for loss in kept]


def compilations():
    return metrics.counter_value("UncachedCompile") or 0


def test_what_the_table_of_support_calls_tested_has_the_losses_of_the_cpu():
    at_hand = [one.precision for one in cells() if (one.device, one.standing) == ("xla", Standing.TESTED)]
    # In this order: torch runs no backward pass on XLA in a process that ran one before XLA was there.
    ours = {precision: losses(Accelerator(mixed_precision=precision)) for precision in at_hand}
    reference = losses(Accelerator(cpu=True))
    assert ours["no"] == pytest.approx(reference, rel=1e-4)
    assert ours["bf16"] == pytest.approx(reference, rel=2e-2)


def test_everything_arrives_and_tied_weights_stay_tied():
    accelerator = Accelerator()
    model, optimizer, scheduler, loader = parts(accelerator)
    assert model.head.weight is model.embedding.weight
    held = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    assert held == {id(weight) for weight in model.parameters()}
    for (batch,) in loader:
        step(accelerator, model, optimizer, scheduler, batch)
        break
    state = [value for slots in optimizer.state.values() for name, value in slots.items() if name != "step"]
    assert {tensor.device.type for tensor in [batch, *model.parameters(), *state]} == {"xla"}


def test_each_shape_is_compiled_once_and_no_step_compiles_again():
    accelerator = Accelerator()
    model, optimizer, scheduler, loader = parts(accelerator)
    counts = []
    for (batch,) in loader:
        step(accelerator, model, optimizer, scheduler, batch)
        counts.append(compilations())
    # The first step also makes the optimizer's state; the second is the program of all that follow.
    assert counts[1] - counts[0] <= 1
    assert len(set(counts[1:])) == 1
    step(accelerator, model, optimizer, scheduler, torch.zeros(2, 6, dtype=torch.long, device=accelerator.device))
    assert compilations() == counts[-1] + 1


def test_a_step_is_synced_once_and_an_evaluation_once_for_each_batch(monkeypatch):
    accelerator = Accelerator()
    model, optimizer, scheduler, loader = parts(accelerator)
    synced = []
    sync = torch_xla.sync
    monkeypatch.setattr(torch_xla, "sync", lambda *args, **kwargs: (synced.append(1), sync(*args, **kwargs)))
    for (batch,) in loader:
        step(accelerator, model, optimizer, scheduler, batch)
    assert len(synced) == STEPS
    with torch.no_grad():
        for (batch,) in loader:
            model(batch)
    assert len(synced) == STEPS + STEPS - 1


def test_a_run_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(tmp_path):
    accelerator = Accelerator()
    model, optimizer, scheduler, loader = parts(accelerator, shuffle=True)
    kept = []
    for index, (batch,) in enumerate(loader):
        kept.append(step(accelerator, model, optimizer, scheduler, batch).item())
        if index == STEPS // 2:
            accelerator.save_state(tmp_path / "half")
            drawn = torch.rand(3, device=accelerator.device).cpu()

    other = Accelerator()
    model, optimizer, scheduler, loader = parts(other, shuffle=True)
    other.load_state(tmp_path / "half")
    assert torch.equal(torch.rand(3, device=other.device).cpu(), drawn)
    for position, (batch,) in enumerate(loader, start=STEPS // 2 + 1):
        assert step(other, model, optimizer, scheduler, batch).item() == pytest.approx(kept[position], rel=1e-6)
    assert position == STEPS - 1


def test_saved_weights_are_all_there_and_on_the_cpu(tmp_path):
    accelerator = Accelerator()
    model, *_ = parts(accelerator)
    accelerator.save_model(model, tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    expected = model.state_dict()
    assert expected.keys() - saved.keys() == {"head.weight"}  # tied to the embedding
    assert all(torch.equal(tensor, expected[name].cpu()) for name, tensor in saved.items())
    accelerator.save(expected, tmp_path / "weights.pt")
    assert {tensor.device.type for tensor in torch.load(tmp_path / "weights.pt").values()} == {"cpu"}


def test_gradients_of_many_processes_are_averaged_once_before_they_are_clipped(monkeypatch):
    """The processes themselves need a TPU: what is watched here is when the averaging happens."""
    from accel_runtime.strategies import Bundle, xla

    averaged = []
    monkeypatch.setattr(xla.xla_model, "reduce_gradients", averaged.append)
    model = nn.Linear(2, 1)
    optimizer, other = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
    strategy = xla.XlaDataParallel()
    strategy.prepare(Bundle(optimizers=(optimizer,)))
    strategy.defer((model,), True)
    strategy.clip_norm(model.parameters(), 1.0, 2.0)
    assert averaged == []
    strategy.defer((model,), False)
    for expected in ([optimizer], [optimizer, optimizer]):
        model(torch.ones(1, 2)).sum().backward()
        strategy.clip_norm(model.parameters(), 1.0, 2.0)
        strategy.clip_value(model.parameters(), 1.0)
        optimizer.step()
        assert averaged == expected
    optimizer.step()
    assert averaged == [optimizer] * 3
    other.step()
    assert averaged == [optimizer] * 3


def test_seeds_reach_the_device():
    accelerator = Accelerator()

    def drawn(seed):
        set_seed(seed)
        return torch.rand(4, device=accelerator.device).cpu()

    first, again, other = drawn(1), drawn(1), drawn(2)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_one_process_is_alone_however_many_chips_it_sees(monkeypatch):
    monkeypatch.setattr("torch_xla.runtime.addressable_device_count", lambda: 4)
    assert Xla().world(World()) == World()


DRAW = """
import sys
import torch
from accel_runtime import Accelerator

torch.manual_seed(int(sys.argv[1]))
print(torch.rand(2, device=Accelerator().device).tolist())
"""


def test_a_seed_that_was_set_before_the_accelerator_counts(tmp_path):
    command = [sys.executable, "-c", DRAW]
    drawn = [subprocess.run([*command, seed], capture_output=True, text=True, timeout=300).stdout for seed in "121"]
    assert drawn[0] == drawn[2] != drawn[1]
    assert drawn[0].startswith("[0.")


TRAIN = """
import torch
from accel_runtime import Accelerator

def train():
    accelerator = Accelerator()
    model = torch.nn.Linear(4, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(3):
        accelerator.backward(model(torch.ones(2, 4, device=accelerator.device)).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    print("trained on", accelerator.device.type, "as", accelerator.process_index, "of", accelerator.num_processes)
"""
AS_ON_A_TPU = """
from accel_runtime import machine, notebook

notebook.this_machine = lambda environ: machine.Machine("tpu", ("0",), 1)
notebook.notebook_launcher(train)
"""


def run(folder, script, *flags):
    path = folder / "train.py"
    path.write_text(TRAIN + script)
    launch = ["-m", "accel_runtime", "launch", *flags] if flags else []
    return subprocess.run([sys.executable, *launch, str(path)], capture_output=True, text=True, timeout=300)


def test_a_launched_script_trains_on_it(tmp_path):
    assert run(tmp_path, "train()", "--num-processes", "1").stdout == "trained on xla as 0 of 1\n"
    failed = run(tmp_path, "train()", "--num-processes", "2")
    assert failed.returncode == 1
    assert "torchrun started 2 processes, and XLA on CPU joins 1; start one, or use the machine's TPU" in failed.stderr


def test_a_notebook_starts_the_processes_through_torch_xla(tmp_path):
    done = run(tmp_path, AS_ON_A_TPU)
    assert done.stdout == "trained on xla as 0 of 1\n", done.stderr
