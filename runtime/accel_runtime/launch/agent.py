"""Running a plan: by becoming the script, or on the elastic agent of torch.distributed.run in this process."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import NoReturn
from uuid import uuid4

from accel_runtime.errors import ConfigError
from accel_runtime.launch.digest import digest, failures_of, last_words
from accel_runtime.launch.ends import Attempt, Watch, watched_agent
from accel_runtime.launch.plan import Plan
from accel_runtime.launch.rendezvous import wait_for_first_machine
from accel_runtime.launch.scratch import scratch_folder
from accel_runtime.launch.status import StatusLine
from accel_runtime.launch.worker import FOLD, LAUNCHER_PID
from accel_runtime.options import METRICS_POINTER
from accel_runtime.stopping import ASKED, EXIT_CODE, STOPPED_FILE

CPP_LOG_LEVEL = "TORCH_CPP_LOG_LEVEL"


def run_plan(plan: Plan) -> NoReturn:
    """Run to the end and exit as the run did; with one process, the script takes the place of this one."""
    environment = {**os.environ, **plan.environment}
    if not plan.replaces_launcher:
        sys.exit(_run_agent(plan))
    command = plan.command()
    sys.stdout.flush()
    if os.name == "nt":  # has no exec: its imitation returns to the shell at once
        sys.exit(subprocess.run(command, env=environment, check=False).returncode)
    os.execve(command[0], command, environment)


def _run_agent(plan: Plan) -> int:
    if find_spec("torch") is None:
        raise ConfigError(
            "torch is not installed here, and many processes run on it; see pytorch.org for the right build"
        )
    os.environ.update(plan.environment, **{LAUNCHER_PID: str(os.getpid())})
    os.environ.setdefault("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "[rank ${rank}] ")
    if not plan.settings.debug:
        _quieten()
    if not (plan.settings.debug or plan.settings.log_dir or plan.settings.tee):
        os.environ[FOLD] = "1"
    with scratch_folder() as scratch:
        os.environ[STOPPED_FILE] = str(scratch / "stopped")
        logs = [] if plan.settings.log_dir else [f"--log-dir={scratch}"]
        # By which the ranks seed themselves. Several machines know each other by a name that all can tell.
        run = [] if plan.rendezvous else [f"--rdzv-id={uuid4().hex}"]
        arguments = [*plan.agent, *run, *logs, *plan.program()]
        os.environ[METRICS_POINTER] = str(scratch / "metrics")
        with StatusLine(scratch / "metrics", sys.stderr):
            return _exit_code(plan, arguments, Path(plan.settings.log_dir) if plan.settings.log_dir else scratch)


def _exit_code(plan: Plan, arguments: list[str], logs: Path) -> int:
    """Run torch's agent to the end; what went wrong is told on stderr."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous.api import RendezvousError
    from torch.distributed.launcher import api as launcher

    if plan.rendezvous and not plan.rendezvous.is_first:
        wait_for_first_machine(plan.rendezvous)

    def restart(attempt: Attempt, number: int) -> None:
        said = _told(plan, attempt, logs)
        why = f"restart {number} of {plan.settings.max_restarts}" if said else "machines have come or gone"
        sys.stderr.write(f"{said}accel launch: {why}: all ranks start again\n")

    watch = Watch(restart)
    # Torch has no other way to be told which agent to use.
    vars(launcher)["LocalElasticAgent"] = watched_agent(watch)
    if hasattr(signal, "SIGUSR1"):
        # Schedulers send it to all processes of a job; it would end this one.
        signal.signal(signal.SIGUSR1, _pass_on)
    try:
        run.run(run.parse_args(arguments))  # type: ignore[no-untyped-call]
    except ChildFailedError as failure:
        sys.stderr.write(_told(plan, watch.attempt, logs) or f"accel launch: {failure}\n")
        return 1
    except SignalException as ended:
        recorded = Attempt(watch.attempt.number, watch.attempt.started)
        if Path(os.environ[STOPPED_FILE] + ASKED).exists() and (said := _told(plan, recorded, logs)):
            # A rank that was to end in order has failed on its way out.
            sys.stderr.write(said)
            return 1
        sys.stderr.write(f"accel launch: ended by {ended.sigval.name}; no process is left\n")
        return 128 + int(ended.sigval)
    except RendezvousError as error:
        sys.stderr.write(f"accel launch: not all machines came to the rendezvous at {_place(plan)}: {error}\n")
        return 1
    if Path(os.environ[STOPPED_FILE]).exists():
        sys.stderr.write("accel launch: the ranks were asked to stop, and ended in order\n")
        return EXIT_CODE
    return 0


def _told(plan: Plan, attempt: Attempt, logs: Path) -> str:
    """What the rank to blame wrote, and the digest of a failed attempt; nothing when no rank failed."""
    failures = failures_of(attempt, logs)
    if not failures:
        return ""
    return last_words(failures[0].rank, attempt, logs) + digest(failures, plan.layout, plan.settings.log_dir)


def _pass_on(number: int, frame: FrameType | None) -> None:
    import psutil

    for rank in psutil.Process().children():
        rank.send_signal(number)


def _place(plan: Plan) -> str:
    return f"{plan.rendezvous.host}:{plan.rendezvous.port}" if plan.rendezvous else "this machine"


def _quieten() -> None:
    """The agent's own commentary on a failure repeats, at length, what the digest says; ranks keep their voice."""
    logging.disable(logging.ERROR)
    said = os.environ.get(CPP_LOG_LEVEL)
    os.environ.setdefault(CPP_LOG_LEVEL, "ERROR")
    import torch  # noqa: F401  reads the level once

    if said is None:
        del os.environ[CPP_LOG_LEVEL]
