"""Who this process is among the processes of the run, read once from what the launcher left in the environment.

torchrun and all who set the same variables (accel launch, Kubeflow, Ray Train, SageMaker), srun, and the mpirun of
Open MPI, MPICH and Intel are understood; anything else is a single process.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from accel_runtime.errors import WorldError
from accel_runtime.hostlist import first_host, tasks_on


@dataclass(frozen=True, slots=True)
class World:
    """Ranks count from 0; `local` means on this machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    node_rank: int = 0
    launcher: str = "python"  # what started the processes: python, torchrun, mpi, slurm
    meeting_point: str = "env://"  # the init_method with which the ranks find each other
    restarts: int = 0  # how often torch's agent has started the ranks again

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def is_local_main(self) -> bool:
        return self.local_rank == 0

    @property
    def is_last(self) -> bool:
        return self.rank == self.size - 1


@dataclass(frozen=True, slots=True)
class Dialect:
    """The variables in which one launcher tells a process its place; each is the first that is set."""

    launcher: str
    rank: str
    size: tuple[str, ...]
    local_rank: tuple[str, ...]
    local_size: tuple[str, ...]
    node_rank: tuple[str, ...] = ()
    job: tuple[str, ...] = ()  # what tells two runs on one machine apart


# In this order: torchrun may run inside mpirun or srun, and mpirun inside an allocation of SLURM.
DIALECTS = (
    Dialect("torchrun", "RANK", ("WORLD_SIZE",), ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE",), ("GROUP_RANK", "NODE_RANK")),
    Dialect(
        "mpi",
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
        (),  # OMPI_COMM_WORLD_NODE_RANK is not the machine's number but the rank on it
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    Dialect(
        "mpi", "PMI_RANK", ("PMI_SIZE",), ("MPI_LOCALRANKID",), ("MPI_LOCALNRANKS",), (), ("PMI_ID", "HYDI_CONTROL_FD")
    ),
    Dialect(
        "slurm",
        "SLURM_PROCID",
        ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        ("SLURM_LOCALID",),
        ("SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"),
        ("SLURM_NODEID",),
        ("SLURM_JOB_ID",),
    ),
)


# In the environment of a process that has joined the others, for its children: their place is taken.
TAKEN = "ACCEL_PLACE_TAKEN"
# In the environment of a process that was seeded as the others of its run, for its children: they draw for themselves.
SEEDED = "ACCEL_SEEDED"


def take_place(environ: MutableMapping[str, str], pid: int) -> None:
    """Notes that this process has joined the others: a process that it starts inherits its variables, not its place."""
    environ[TAKEN] = f"{pid} {_place(environ)}"


def leave_place(environ: MutableMapping[str, str]) -> None:
    environ.pop(TAKEN, None)


def place_is_taken(environ: Mapping[str, str], pid: int) -> bool:
    """Whether another process, from which this one has its variables, has joined with them: it is a parent's child.

    So it is with the workers of a DataLoader that import the script anew. Who sets variables of its own may join.
    """
    owner, _, place = environ.get(TAKEN, "").partition(" ")
    return bool(owner) and owner != str(pid) and place == _place(environ)


def may_seed(environ: MutableMapping[str, str]) -> bool:
    """Whether this is one of several processes, asked for the first time; not for the children of one."""
    place = _place(environ)
    try:
        alone = world_from(environ).size == 1
    except WorldError:
        return False  # an Accelerator will refuse to be made; whoever makes none is not disturbed
    if alone or environ.get(SEEDED) == place:
        return False
    environ[SEEDED] = place
    return True


def number_of_run(environ: Mapping[str, str]) -> int:
    """What all processes of a run can compute, and the next run differs in, as far as the launcher names its runs."""
    world = world_from(environ)
    # MASTER_ADDR is not asked: the first process may have its machine by another name than the others.
    names = {"torchrun": ("TORCHELASTIC_RUN_ID", "MASTER_PORT"), "slurm": ("SLURM_STEP_ID",)}.get(world.launcher, ())
    # One agent counts its restarts; those of several machines may count differently.
    restarts = world.restarts if world.local_size == world.size else 0
    run = [world.meeting_point, *[environ.get(name, "") for name in names], str(restarts)]
    return zlib.crc32(" ".join(run).encode())


def _place(environ: Mapping[str, str]) -> str:
    names = [dialect.rank for dialect in DIALECTS]
    return " ".join(environ.get(name, "-") for name in (*names, "MASTER_ADDR", "MASTER_PORT"))


def world_of_group(rank: int, size: int, environ: Mapping[str, str]) -> World:
    """That of processes which the script has joined by itself, all on one machine unless the environment says otherwise."""
    return World(rank, size, int(environ.get("LOCAL_RANK", rank)), int(environ.get("LOCAL_WORLD_SIZE", size)))


def world_from(environ: Mapping[str, str]) -> World:
    """The place of this process, or a single process where no launcher has spoken."""
    for dialect in DIALECTS:
        if dialect.rank in environ and _first(environ, dialect.size) and not _is_batch_script(dialect, environ):
            return _read(dialect, environ)
    return World()


def _read(dialect: Dialect, environ: Mapping[str, str]) -> World:
    rank, size = _number(environ, dialect.rank), _number(environ, _first(environ, dialect.size))
    if not 0 <= rank < size:
        raise WorldError(f"{dialect.rank}={rank} is outside a world of {size}; the launcher must number ranks from 0")
    default_rank, default_size = (0, 1) if _is_alone_on_its_machine(environ) else (rank, size)
    node_rank = _number(environ, _first(environ, dialect.node_rank), -1)
    local_rank = _number(environ, _first(environ, dialect.local_rank), default_rank)
    local_size = _local_size(environ, _first(environ, dialect.local_size), max(node_rank, 0), default_size)
    # Without a word from the launcher: machines are filled one after the other.
    node_rank = node_rank if node_rank >= 0 else rank // local_size
    meeting_point = (
        "env://"
        if dialect.launcher == "torchrun" or size == 1
        else _meeting_point(dialect, environ, local_size == size)
    )
    restarts = _number(environ, "TORCHELASTIC_RESTART_COUNT", 0)
    return World(rank, size, local_rank, local_size, node_rank, dialect.launcher, meeting_point, restarts)


def _is_batch_script(dialect: Dialect, environ: Mapping[str, str]) -> bool:
    """The script given to sbatch has a SLURM_PROCID and all the SLURM_NTASKS, but runs once: srun starts the tasks."""
    return dialect.launcher == "slurm" and environ.get("ENVIRONMENT") == "BATCH" and "SLURM_STEP_ID" not in environ


def _is_alone_on_its_machine(environ: Mapping[str, str]) -> bool:
    """A launcher that sets no LOCAL_RANK starts one process for each pod or host."""
    at_home = environ.get("MASTER_ADDR", "127.0.0.1") in ("127.0.0.1", "localhost", "::1")
    return not at_home or "KUBERNETES_SERVICE_HOST" in environ


def _meeting_point(dialect: Dialect, environ: Mapping[str, str], one_machine: bool) -> str:
    """Where the ranks meet when the launcher names no place: the first host, at a port that follows from the job."""
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    host = environ.get("MASTER_ADDR") or ("127.0.0.1" if one_machine else nodes and first_host(nodes))
    if not host:
        raise WorldError(
            f"{dialect.launcher} started this process among several machines and does not say where the first is; "
            "pass it on, such as with `mpirun -x MASTER_ADDR=node1`"
        )
    job = environ.get(_first(environ, dialect.job), "")
    # Below 32768, where the kernel's own choices begin.
    port = environ.get("MASTER_PORT") or str(10000 + zlib.crc32(job.encode()) % 20000)
    return f"tcp://{host}:{port}"


def _local_size(environ: Mapping[str, str], name: str, node: int, default: int) -> int:
    value = environ.get(name)
    if value is not None and "TASKS_PER_NODE" in name:
        return tasks_on(node, value)
    return _number(environ, name, default)


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    """The first of these variables that is set; an empty name when none is."""
    return next((name for name in names if name in environ), "")


def _number(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    value = environ.get(name)
    if value is None and default is not None:
        return default
    try:
        return int(value or "")
    except ValueError:
        raise WorldError(f"{name}={value!r} in the environment is not a number") from None
