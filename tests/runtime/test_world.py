"""Who a process is, from what each launcher leaves in its environment."""

from __future__ import annotations

import pytest
from accel_runtime.errors import WorldError
from accel_runtime.world import World, may_seed, number_of_run, place_is_taken, take_place, world_from


def test_no_launcher_is_one_process() -> None:
    assert world_from({"PATH": "/bin", "MASTER_ADDR": "somewhere"}) == World()


def test_torchrun() -> None:
    said = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1"}
    assert world_from(said) == World(5, 8, 1, 4, 1, "torchrun", "env://")


def test_ranks_without_local_ranks_share_a_machine_when_they_meet_on_loopback() -> None:
    here = world_from({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"})
    assert (here.local_rank, here.local_size, here.node_rank) == (1, 2, 0)


def test_a_pod_without_local_rank_has_its_devices_to_itself() -> None:
    pod = world_from({"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "job-master-0"})
    assert (pod.local_rank, pod.local_size, pod.node_rank) == (0, 1, 3)


def test_open_mpi_on_one_machine_meets_on_loopback_at_a_port_of_the_job() -> None:
    said = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    said |= {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_NODE_RANK": "1", "PMIX_NAMESPACE": "17"}
    one, other = world_from(said), world_from(said | {"PMIX_NAMESPACE": "18"})
    assert (one.rank, one.size, one.local_rank, one.node_rank, one.launcher) == (1, 2, 1, 0, "mpi")
    assert one.meeting_point.startswith("tcp://127.0.0.1:") and one.meeting_point != other.meeting_point


def test_mpi_on_several_machines_asks_for_the_address_it_cannot_know() -> None:
    said = {"PMI_RANK": "4", "PMI_SIZE": "8", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "4"}
    with pytest.raises(WorldError, match="mpirun -x MASTER_ADDR"):
        world_from(said)
    named = world_from(said | {"MASTER_ADDR": "node1", "MASTER_PORT": "2222"})
    assert (named.node_rank, named.meeting_point) == (1, "tcp://node1:2222")


SRUN = {
    "SLURM_PROCID": "4",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_NTASKS": "99",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_NODELIST": "gpu[08-10]",
}


def test_srun_meets_at_the_first_host_of_its_node_list() -> None:
    world = world_from(SRUN)
    assert (world.rank, world.size, world.local_rank, world.local_size, world.node_rank) == (4, 5, 0, 1, 2)
    assert world.meeting_point.startswith("tcp://gpu08:")


def test_the_script_given_to_sbatch_is_one_process_and_not_rank_0_of_many() -> None:
    batch = {name: value for name, value in SRUN.items() if "STEP" not in name}
    assert world_from(batch | {"SLURM_PROCID": "0", "ENVIRONMENT": "BATCH"}) == World()


def test_torchrun_inside_srun_is_torchrun() -> None:
    assert world_from(SRUN | {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}).launcher == "torchrun"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 is outside a world of 2"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK='one' in the environment is not a number"),
    ],
)
def test_an_impossible_place_is_refused(said: dict[str, str], message: str) -> None:
    with pytest.raises(WorldError, match=message):
        world_from(said)


def test_the_place_of_a_rank_is_not_that_of_the_processes_it_starts():
    environ = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    assert not place_is_taken(environ, pid=7)
    take_place(environ, pid=7)
    assert not place_is_taken(environ, pid=7)
    assert place_is_taken(environ, pid=8)
    assert not place_is_taken({**environ, "RANK": "0", "MASTER_PORT": "29501"}, pid=8)


RANK = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "4000"}


def test_a_process_of_several_is_seeded_once_and_its_children_are_not() -> None:
    environ = dict(RANK)
    assert may_seed(environ)
    assert not may_seed(environ)
    assert may_seed(environ | {"MASTER_PORT": "4001"}), "a run of its own that it has started"


@pytest.mark.parametrize("environ", [{}, RANK | {"RANK": "0", "WORLD_SIZE": "1"}, RANK | {"RANK": "2"}])
def test_a_process_alone_or_with_a_place_that_cannot_be_is_not_seeded(environ: dict[str, str]) -> None:
    before = dict(environ)
    assert not may_seed(environ)
    assert environ == before


def test_all_processes_of_a_run_have_one_number_and_the_next_run_another() -> None:
    others = {"RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost"}
    assert number_of_run(RANK) == number_of_run(RANK | others)
    runs = [{}, {"MASTER_PORT": "4001"}, {"TORCHELASTIC_RUN_ID": "b"}, {"TORCHELASTIC_RESTART_COUNT": "1"}]
    assert len({number_of_run(RANK | run) for run in runs}) == len(runs)
    slurm = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    jobs = [slurm, slurm | {"SLURM_STEP_ID": "1"}, slurm | {"SLURM_JOB_ID": "8"}]
    assert len({number_of_run(job) for job in jobs}) == len(jobs)
    assert number_of_run(slurm) == number_of_run(slurm | {"SLURM_PROCID": "1"})


def test_machines_that_count_restarts_differently_have_one_number() -> None:
    machine = RANK | {"WORLD_SIZE": "4"}
    assert number_of_run(machine) == number_of_run(machine | {"RANK": "3", "TORCHELASTIC_RESTART_COUNT": "1"})
