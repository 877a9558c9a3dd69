"""A job for somebody else's scheduler: the same launch, written as an sbatch script or a PyTorchJob."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

from accel_runtime.errors import ConfigError
from accel_runtime.launch.plan import Target
from accel_runtime.nearest import nearest
from accel_runtime.options import Settings, flag_of
from accel_runtime.values import as_text

SCHEDULERS = ("slurm", "kubernetes")

# What the scheduler decides for each machine is left out of the command that runs there.
_FROM_SCHEDULER = ("num_machines", "num_processes", "processes_per_machine", "machine_rank", "main_process_ip")


@dataclass(frozen=True, slots=True)
class Queue:
    """What a cluster wants to know of a job beside its size; `environment` are shell commands that come first."""

    partition: str | None = None
    account: str | None = None
    time: str | None = None
    environment: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        said = {"partition": self.partition, "account": self.account, "time": self.time}
        return [f"#SBATCH --{key}={value}" for key, value in said.items() if value is not None]


def submit(scheduler: str, target: Target, settings: Settings, yes: bool, queue: Queue) -> str:
    """The job as text; with `yes`, what sbatch answered to it."""
    if scheduler not in SCHEDULERS:
        raise ConfigError(
            f"--submit is {scheduler!r}, expected one of {', '.join(SCHEDULERS)}{nearest(scheduler, SCHEDULERS)}"
        )
    machines, local = _whole_layout(settings)
    if scheduler == "kubernetes":
        if yes:
            raise ConfigError("--yes submits to SLURM only; pipe the manifest into `kubectl create -f -`")
        if queue != Queue():
            raise ConfigError(
                "--partition, --account, --time and --setup are for --submit slurm; edit the manifest instead"
            )
        return pytorch_job(target, settings, machines, local)
    script = sbatch_script(target, settings, machines, local, queue)
    return _sbatch(script) if yes else script


def sbatch_script(target: Target, settings: Settings, machines: int, local: int, queue: Queue) -> str:
    """One launcher for each machine; it finds its rank and the first machine in what srun sets."""
    gpus = [] if settings.cpu else [f"#SBATCH --gpus-per-node={local}"]
    command = shlex.join(["accel", "launch", *_flags(settings, local), *target.as_command()])
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={_job_name(target)}",
        f"#SBATCH --nodes={machines}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --cpus-per-task={local * (settings.threads_per_process or 4)}",
        *gpus,
        *queue.lines(),
        "#SBATCH --output=%x-%j.out",
        "",
        *queue.environment,
        f"srun --kill-on-bad-exit=1 {command}",
    ]
    return "\n".join(lines)


def pytorch_job(target: Target, settings: Settings, machines: int, local: int) -> str:
    """A manifest for the training operator; the image is the user's to fill in."""
    import yaml

    command = ["accel", "launch", *_flags(settings, local), *target.as_command()]

    def replicas(count: int) -> dict[str, Any]:
        # Built anew for each role: YAML would write an object that it meets twice as a reference.
        container: dict[str, Any] = {"name": "pytorch", "image": "YOUR-IMAGE-WITH-THE-SCRIPT", "command": [*command]}
        if not settings.cpu:
            container["resources"] = {"limits": {"nvidia.com/gpu": local}}
        return {"replicas": count, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}

    roles = {"Master": replicas(1), **({"Worker": replicas(machines - 1)} if machines > 1 else {})}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": _job_name(target)},
        "spec": {"pytorchReplicaSpecs": roles},
    }
    return str(yaml.safe_dump(job, sort_keys=False)).rstrip()


def _sbatch(script: str) -> str:
    if shutil.which("sbatch") is None:
        raise ConfigError("sbatch is not on this machine; without --yes the script is printed, to submit it elsewhere")
    done = subprocess.run(["sbatch"], input=script, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"sbatch refused the job: {done.stderr.strip()}")
    return done.stdout.strip()


def _whole_layout(settings: Settings) -> tuple[int, int]:
    """Machines and processes on each; a job cannot look at the machines that it will get."""
    if ":" in settings.num_machines:
        raise ConfigError(f"num_machines is {settings.num_machines}; a job asks for a fixed number of machines")
    machines = int(settings.num_machines)
    local = settings.processes_per_machine or (settings.num_processes or 0) // machines
    if local < 1 or (settings.num_processes or local * machines) != local * machines:
        raise ConfigError(f"say how many processes each of the {machines} machines runs: --processes-per-machine N")
    return machines, local


def _flags(settings: Settings, local: int) -> list[str]:
    """The launch's other settings, as flags for the machines where no config file of this one is read."""
    defaults = Settings()
    flags = [f"--processes-per-machine={local}"]
    for key in Settings.__struct_fields__:
        value = getattr(settings, key)
        if key in _FROM_SCHEDULER or value == getattr(defaults, key):
            continue
        off = f"--no-{flag_of(key)[2:]}"
        flags += [(flag_of(key) if value else off) if isinstance(value, bool) else f"{flag_of(key)}={as_text(value)}"]
    return flags


def _job_name(target: Target) -> str:
    stem = target.name.rsplit("/", 1)[-1].removesuffix(".py")
    return "".join(letter if letter.isalnum() else "-" for letter in stem).strip("-").lower() or "train"
