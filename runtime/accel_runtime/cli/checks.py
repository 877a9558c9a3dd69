"""The checks of `accel test`: each does for real what training does, and raises when the result is not right."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear, Module, Sequential, Tanh
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

from accel_runtime import Accelerator
from accel_runtime.errors import AccelError

STEPS = 12
BATCH = 8


class NotHere(Exception):
    """The check does not apply to this version or device; the message says why. Nothing is wrong."""


@dataclass(frozen=True, slots=True)
class Check:
    """`hint` is what to try when it fails."""

    name: str
    run: Callable[[Accelerator], str]
    hint: str


def plain_accelerator(mixed_precision: str | None = None) -> Accelerator:
    """As configured, but for what changes the batch of a step: the checks count on it."""
    accelerator = Accelerator(mixed_precision=mixed_precision, gradient_accumulation_steps=1, split_batches=False)
    accelerator._unannounced = False  # the line of a run would stand between those of the checks
    return accelerator


def processes(accelerator: Accelerator) -> str:
    """Every rank is there once."""
    ranks = accelerator.gather_object([accelerator.process_index])
    _require(ranks == list(range(accelerator.num_processes)), f"ranks {ranks} of {accelerator.num_processes}")
    return f"{accelerator.num_processes} on {accelerator.device.type}"


def collectives(accelerator: Accelerator) -> str:
    """Every collective gives the values that it promises."""
    rank, size, device = accelerator.process_index, accelerator.num_processes, accelerator.device
    mine = torch.tensor([float(rank + 1)], device=device)
    everyone = torch.arange(1.0, size + 1)
    longer = torch.ones(rank + 1, device=device)
    results = {
        "gather": (accelerator.gather(mine), everyone),
        "reduce sum": (accelerator.reduce(mine, "sum"), everyone.sum().reshape(1)),
        "reduce mean": (accelerator.reduce(mine, "mean"), everyone.mean().reshape(1)),
        "broadcast": (accelerator.broadcast(mine), torch.ones(1)),
        "pad_across_processes": (accelerator.pad_across_processes(longer).count_nonzero(), torch.tensor(rank + 1)),
    }
    for name, (got, expected) in results.items():
        _require(torch.equal(got.cpu(), expected), f"{name} gave {got.tolist()} and not {expected.tolist()}")
    told = accelerator.broadcast_object_list([{"from": rank}])
    _require(told == [{"from": 0}], f"broadcast_object_list gave {told}")
    accelerator.wait_for_everyone()
    return "gather, reduce, broadcast, pad, objects, barrier"


def sharding(accelerator: Accelerator) -> str:
    """An odd number of samples is seen once each, and evaluated once each."""
    count = 8 * accelerator.num_processes + 3
    loader = accelerator.prepare(DataLoader(TensorDataset(torch.arange(count)), batch_size=4))
    seen = torch.cat([accelerator.gather_for_metrics(batch) for (batch,) in loader])
    _require(sorted(seen.tolist()) == list(range(count)), f"{len(seen)} results for {count} samples")
    return f"{count} samples"


def training(accelerator: Accelerator) -> str:
    """A short training gives the losses of one process with the same global batch."""
    alone = _losses(None, accelerator.num_processes)
    together = _losses(accelerator, accelerator.num_processes)
    tolerance = 1e-4 if accelerator.mixed_precision == "no" else 5e-2
    apart = max(abs(one - other) / abs(one) for one, other in zip(alone, together))
    _require(apart < tolerance, f"losses {together} and not {alone}")
    return f"{len(alone)} steps, losses within {apart:.0e} of one process"


def precision(name: str) -> Callable[[Accelerator], str]:
    def check(accelerator: Accelerator) -> str:
        try:
            other = plain_accelerator(name)
        except AccelError as error:
            raise NotHere(str(error)) from error
        losses = _losses(other, other.num_processes)
        _require(sum(losses[-4:]) < sum(losses[:4]), f"the loss did not fall: {losses}")
        return f"loss {losses[0]:.3f} to {losses[-1]:.3f}"

    return check


def checkpoint(accelerator: Accelerator) -> str:
    """What is saved comes back, on every process."""
    saver = plain_accelerator()
    model = saver.prepare(_model())
    before = [parameter.detach().clone() for parameter in model.parameters()]
    (folder,) = saver.broadcast_object_list([tempfile.mkdtemp(prefix="accel-test-") if saver.is_main_process else None])
    try:
        saver.save_state(f"{folder}/state")
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        saver.load_state(f"{folder}/state")
        saver.wait_for_everyone()
    finally:
        if saver.is_main_process:
            shutil.rmtree(folder, ignore_errors=True)
    same = all(torch.equal(old, new) for old, new in zip(before, model.parameters()))
    _require(same, "the parameters that came back are not those that were saved")
    return "saved, wiped, loaded"


_REPORT = "report it with the output of `accel env`:"

CHECKS = (
    Check("processes", processes, "look at `accel launch --explain`: is num_processes what you mean?"),
    Check(
        "collectives", collectives, "name the network between the machines in GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME"
    ),
    Check("odd-sized data", sharding, f"{_REPORT} results would be counted twice"),
    Check("training", training, f"{_REPORT} training would not be what it was"),
    Check("precision no", precision("no"), f"{_REPORT} nothing was asked of the device but float32"),
    Check("precision bf16", precision("bf16"), "train with --mixed-precision fp16 or no"),
    Check("precision fp16", precision("fp16"), "train with --mixed-precision bf16 or no"),
    Check("precision fp8", precision("fp8"), "train with --mixed-precision bf16"),
    Check("checkpoint", checkpoint, "is the temporary folder (TMPDIR) shared by all machines and not full?"),
)


def _model() -> Module:
    torch.manual_seed(0)
    return Sequential(Linear(6, 16), Tanh(), Linear(16, 1))


def _losses(accelerator: Accelerator | None, share: int) -> list[float]:
    """Losses of a short training: sharded by an accelerator, or plain PyTorch on the batches of all at once."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(STEPS * BATCH * share, 6, generator=generator)
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True).tanh())
    model = _model()
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    loader: Any = DataLoader(data, batch_size=BATCH if accelerator else BATCH * share)
    if accelerator:
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses: list[Tensor] = []
    for batch, target in loader:
        loss = mse_loss(model(batch), target)
        accelerator.backward(loss) if accelerator else loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        mine = loss.detach().reshape(1)
        losses.append(accelerator.gather(mine).mean() if accelerator else mine.mean())
    return [loss.item() for loss in losses]


def _require(right: bool, otherwise: str) -> None:
    if not right:
        raise AssertionError(otherwise)
