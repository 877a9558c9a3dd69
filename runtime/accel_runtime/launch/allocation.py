"""What is already decided around the launcher: a scheduler that has given out machines, or a rank that it started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accel_runtime.hostlist import first_host
from accel_runtime.world import World, world_from


def rank_already(environ: Mapping[str, str]) -> World | None:
    """The world of which somebody else has started this launcher as one rank: it then only runs the script."""
    world = world_from(environ)
    one_for_each_machine = world.local_size == 1 and "LOCAL_RANK" not in environ
    return None if world.size == 1 or one_for_each_machine else world


def machines_of(environ: Mapping[str, str]) -> dict[str, Any]:
    """The settings that a scheduler implies by starting one launcher on each machine."""
    for found in (_torchrun_defaults(environ), _pods(environ), _slurm(environ)):
        if found:
            return found
    return {}


def _torchrun_defaults(environ: Mapping[str, str]) -> dict[str, Any]:
    """Kubeflow's trainer sets the variables in which torchrun takes its own options."""
    names = {
        "num_machines": "PET_NNODES",
        "machine_rank": "PET_NODE_RANK",
        "main_process_ip": "PET_MASTER_ADDR",
        "main_process_port": "PET_MASTER_PORT",
        "processes_per_machine": "PET_NPROC_PER_NODE",
    }
    said = {key: environ[name] for key, name in names.items() if name in environ}
    return {key: value for key, value in said.items() if key != "processes_per_machine" or value.isdecimal()}


def _pods(environ: Mapping[str, str]) -> dict[str, Any]:
    """A PyTorchJob numbers its pods with the variables that torchrun uses for ranks."""
    if "LOCAL_RANK" in environ or "MASTER_ADDR" not in environ or "WORLD_SIZE" not in environ:
        return {}
    port = {"main_process_port": environ["MASTER_PORT"]} if "MASTER_PORT" in environ else {}
    place = {"num_machines": environ["WORLD_SIZE"], "machine_rank": environ.get("RANK", "0")}
    return {**place, "main_process_ip": environ["MASTER_ADDR"], **port}


def _slurm(environ: Mapping[str, str]) -> dict[str, Any]:
    """What srun says; the script given to sbatch runs on one machine, whatever the job has been given."""
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST")
    count = environ.get("SLURM_STEP_NUM_NODES") or environ.get("SLURM_NNODES", "1")
    if nodes is None or count == "1" or "SLURM_STEP_ID" not in environ:
        return {}
    rank = environ.get("SLURM_NODEID", "0")
    return {"num_machines": count, "machine_rank": rank, "main_process_ip": first_host(nodes)}
