"""What a scheduler around the launcher has decided already."""

from __future__ import annotations

from accel_runtime.launch.allocation import machines_of, rank_already


def test_srun_with_one_task_for_each_machine_gives_the_machines() -> None:
    srun = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0", "SLURM_NODEID": "1"}
    srun |= {"SLURM_STEP_ID": "0", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    srun |= {"SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
    assert rank_already(srun) is None
    assert machines_of(srun) == {"num_machines": "2", "machine_rank": "1", "main_process_ip": "n1"}


def test_srun_with_many_tasks_on_a_machine_has_started_the_ranks() -> None:
    srun = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "1", "SLURM_STEP_ID": "0"}
    world = rank_already(srun | {"SLURM_STEP_TASKS_PER_NODE": "2"})
    assert world is not None and (world.rank, world.size) == (1, 2)


def test_the_script_given_to_sbatch_is_on_one_machine() -> None:
    batch = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    assert rank_already(batch | {"ENVIRONMENT": "BATCH"}) is None
    assert machines_of(batch) == {}


def test_pods_of_a_pytorchjob_are_machines() -> None:
    pod = {"RANK": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}
    place = {"num_machines": "4", "machine_rank": "2", "main_process_ip": "job-master-0", "main_process_port": "23456"}
    assert rank_already(pod) is None
    assert machines_of(pod) == place


def test_variables_of_torchrun_are_its_options() -> None:
    said = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "a", "PET_NPROC_PER_NODE": "auto"}
    assert machines_of(said) == {"num_machines": "2", "machine_rank": "1", "main_process_ip": "a"}


def test_a_process_of_torchrun_is_a_rank() -> None:
    rank = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "a"}
    assert rank_already(rank) is not None
    assert machines_of(rank) == {}
