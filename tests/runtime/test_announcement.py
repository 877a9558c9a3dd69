"""What a run says of itself when it starts."""

import torch
from accel_runtime import Accelerator
from accel_runtime.announcement import nothing_trains_together, own_statistics, run_in_a_line, unused_devices
from accel_runtime.machine import Machine
from accel_runtime.options import Options
from accel_runtime.resolve import session_from
from torch.utils.data import DataLoader


def test_one_process_says_nothing(capfd):
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(torch.nn.Linear(1, 1), DataLoader(range(4)))
    accelerator.backward(torch.nn.Linear(1, 1)(torch.ones(1)).sum())
    assert capfd.readouterr().err == ""


def test_the_line_has_the_batch_of_the_first_loader_with_what_is_accumulated():
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    loaders = [accelerator.prepare(DataLoader(range(64), size)) for size in (8, 3)]
    session = accelerator._session
    assert run_in_a_line(session, loaders, 4, cores=2) == "1 processes on 1 machine, cpu, no, bf16, global batch 32"
    assert run_in_a_line(session, [], 4, cores=0).endswith("bf16; 1 processes share 0 core here, which is slow")


def test_devices_that_torch_cannot_use_are_named_unless_the_cpu_was_asked_for():
    machine = Machine("cuda", ("0", "1"), 8)
    assert "this machine has 2 cuda devices and torch finds none" in unused_devices(
        session_from(Options(), ()), machine
    )
    assert unused_devices(session_from(Options(cpu=True), ()), machine) is None
    assert unused_devices(session_from(Options(), ()), Machine("cpu", (), 8)) is None


def test_a_model_without_weights_to_train_does_not_count_as_prepared():
    assert nothing_trains_together([torch.nn.Linear(1, 1)], 2) is None
    assert "weights drift apart" in nothing_trains_together([torch.nn.MSELoss()], 2)


def test_batch_normalisation_that_learns_is_said_by_the_kinds_of_its_layers():
    nn = torch.nn
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.BatchNorm1d(2))
    assert own_statistics([model, nn.BatchNorm2d(2)]).startswith(
        "the model has BatchNorm1d and BatchNorm2d: each process"
    )


def test_statistics_that_all_share_or_that_are_held_still_are_not_said():
    held = torch.nn.BatchNorm1d(2).eval()
    assert own_statistics([torch.nn.Linear(2, 2), torch.nn.SyncBatchNorm(2), held]) is None
