"""What a launch decides before anything starts."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from accel_runtime.errors import ConfigError
from accel_runtime.launch.explain import devices_of_ranks, explanation, global_batch
from accel_runtime.launch.layout import Layout, layout_of
from accel_runtime.launch.plan import WORKER, Plan, Target, plan_launch
from accel_runtime.machine import Machine
from accel_runtime.options import Settings, flag_layer, settle

CPU = Machine("cpu", (), 8)
GPUS = Machine("cuda", ("0", "1", "2", "3"), 64)


def plan(machine: Machine = CPU, environ: dict[str, str] | None = None, **flags: Any) -> Plan:
    return plan_launch(Target("train.py", ("--lr", "1")), settle([flag_layer(flags)]), machine, environ or {})


def test_one_process_for_each_device_unless_said_otherwise() -> None:
    assert layout_of(Settings(), CPU) == Layout(1, 1, 1)
    assert layout_of(Settings(), GPUS) == Layout(1, 1, 4)
    assert layout_of(Settings(cpu=True), GPUS) == Layout(1, 1, 1)
    assert layout_of(Settings(devices="0,2"), GPUS) == Layout(1, 1, 2)
    assert layout_of(Settings(num_processes=3), CPU) == Layout(1, 1, 3)


def test_the_number_of_processes_is_the_total_over_all_machines() -> None:
    assert layout_of(Settings(num_processes=8, num_machines="2"), GPUS) == Layout(2, 2, 4)
    assert layout_of(Settings(processes_per_machine=2, num_machines="1:4"), GPUS) == Layout(1, 4, 2)


@pytest.mark.parametrize(
    ("flags", "machine", "message"),
    [
        ({"num_processes": 2, "num_machines": "3"}, CPU, "2 processes cannot run on 3 machines"),
        ({"num_processes": 5, "num_machines": "2"}, CPU, "5 processes do not divide over 2 machines"),
        ({"num_processes": 4, "num_machines": "1:2"}, CPU, "has no fixed total; say processes_per_machine"),
        ({"num_machines": "4:1"}, CPU, "the first number is the smaller one"),
        ({"num_processes": 9, "processes_per_machine": 2, "num_machines": "2"}, CPU, "say one of the two"),
        ({"num_processes": 5}, GPUS, "5 processes on this machine need as many devices, and there are 4"),
        ({"num_processes": 2, "devices": "1"}, GPUS, "need as many devices, and there are 1"),
        ({"devices": "0,7"}, GPUS, "7 is not among those to be used here: 0, 1, 2, 3"),
        ({"devices": "0,1"}, CPU, "devices is 0,1, but no device that torch can use is on this machine; leave it out"),
        ({"num_machines": "2", "num_processes": 2}, CPU, "several machines need main_process_ip"),
        ({"num_machines": "2", "main_process_ip": "127.0.0.1", "main_process_port": 0}, CPU, "must name the same"),
    ],
)
def test_what_does_not_come_out_even_is_refused(flags: dict[str, Any], machine: Machine, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(machine, **flags)


def test_one_process_is_the_script_itself() -> None:
    made = plan(mixed_precision="bf16")
    assert made.replaces_launcher
    assert made.command()[1:] == ["train.py", "--lr", "1"]
    assert made.environment == {"ACCEL_MIXED_PRECISION": "bf16", "ACCEL_LAUNCH_FLAGS": "mixed_precision"}


def test_many_processes_share_the_cores() -> None:
    assert plan(num_processes=3).environment["OMP_NUM_THREADS"] == "2"
    assert plan(num_processes=99).environment["OMP_NUM_THREADS"] == "1"
    assert plan(num_processes=3, threads_per_process=7).environment["OMP_NUM_THREADS"] == "7"
    assert "OMP_NUM_THREADS" not in plan(environ={"OMP_NUM_THREADS": "4"}, num_processes=2).environment


def test_chosen_devices_are_all_that_the_processes_see() -> None:
    assert plan(GPUS, devices="1,3").environment["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert "CUDA_VISIBLE_DEVICES" not in plan(GPUS, devices="all").environment


def test_no_gpu_is_seen_by_a_run_on_the_cpu() -> None:
    assert plan(GPUS, cpu=True).environment["CUDA_VISIBLE_DEVICES"] == "-1"
    assert plan(GPUS, cpu=True, num_processes=2).environment["CUDA_VISIBLE_DEVICES"] == "-1"
    assert "CUDA_VISIBLE_DEVICES" not in plan(cpu=True).environment


def test_restarts_give_each_attempt_a_store_of_its_own() -> None:
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" not in plan(num_processes=2).environment
    assert plan(num_processes=2, max_restarts=1).environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"


def test_the_first_machine_hosts_the_meeting() -> None:
    flags = {"num_machines": "2", "num_processes": 4, "main_process_ip": "127.0.0.1", "main_process_port": 1}
    first, second = plan(machine_rank=0, **flags), plan(machine_rank=1, **flags)
    assert first.rendezvous and first.rendezvous.is_first and "--rdzv-conf=is_host=1,join_timeout=600" in first.agent
    assert second.rendezvous and not second.rendezvous.is_first
    assert "--nnodes=2" in first.agent and "--nproc-per-node=2" in first.agent
    assert "--rdzv-endpoint=127.0.0.1:1" in second.agent
    # Without a rank, the machine that has the address is the first.
    found = plan(**flags).rendezvous
    assert found and found.is_first


def test_a_port_in_use_is_said_before_anything_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} is in use here .*main_process_port 0 finds a free one"):
            plan(num_processes=2, main_process_port=port)


def test_a_launcher_that_is_already_a_rank_only_runs_the_script() -> None:
    mpi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    mpi |= {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    assert plan(environ=mpi).replaces_launcher
    assert plan(environ=mpi, num_processes=2).replaces_launcher
    with pytest.raises(ConfigError, match="num_processes is 3, but mpi has already started 2"):
        plan(environ=mpi, num_processes=3)


def test_the_explanation_names_every_value_the_command_the_batch_and_the_devices() -> None:
    settled = settle([flag_layer({"num_processes": 4, "gradient_accumulation_steps": 2})])
    made = plan_launch(Target("train.py"), settled, GPUS, {})
    text = explanation(made, settled, GPUS, ["a note"])
    for key in Settings.__struct_fields__:
        assert f"{key} " in text
    assert "a note\n" in text and "torch.distributed.run" in text
    assert global_batch(made) == "global batch: 8 x the loader's batch size (4 processes x 2 accumulated)"
    assert devices_of_ranks(made, GPUS)[3] == "local rank 3: cuda 3"
    split = plan(num_processes=2, split_batches=True)
    assert global_batch(split) == "global batch: 1 batch(es) of the loader, each split over 2 processes"


def test_no_option_of_the_script_is_taken_for_one_of_torchs() -> None:
    from torch.distributed import run

    own = ("--log", "x", "--n", "1", "--", "--max", "-m", "--help")
    made = plan_launch(Target("train.py", own), settle([flag_layer({"num_processes": 2})]), CPU, {})
    parsed = run.parse_args(made.command()[3:])
    assert not parsed.module and parsed.training_script == str(WORKER)
    assert tuple(parsed.training_script_args) == ("train.py", *own)


def test_all_processes_of_a_launch_hash_alike_unless_the_user_chose() -> None:
    target, two = Target("train.py"), settle([flag_layer({"num_processes": 2})])
    assert plan_launch(target, two, CPU, {}).environment["PYTHONHASHSEED"] == "0"
    assert "PYTHONHASHSEED" not in plan_launch(target, two, CPU, {"PYTHONHASHSEED": "7"}).environment
    assert "PYTHONHASHSEED" not in plan_launch(target, settle([]), CPU, {}).environment
