"""Running a plan: by becoming the script, or on the elastic agent of torch.distributed.run in this process."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
from typing import NoReturn

from accel_runtime.launch.plan import WORKER, Plan
from accel_runtime.launch.worker import FOLD, LAUNCHER_PID


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
    os.environ.update(plan.environment)
    os.environ[LAUNCHER_PID] = str(os.getpid())
    if not (plan.settings.debug or plan.settings.log_dir or plan.settings.tee):
        os.environ[FOLD] = "1"
    os.environ.setdefault("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "[rank ${rank}] ")

    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    from accel_runtime.launch.digest import digest

    if not plan.settings.debug:
        # The agent's own commentary on a failure repeats what the digest says.
        logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="accel-") as scratch:
        logs = [] if plan.settings.log_dir else [f"--log-dir={scratch}"]
        arguments = [*plan.agent, *logs, "-m", WORKER, *plan.target.as_command()]
        try:
            run.run(run.parse_args(arguments))  # type: ignore[no-untyped-call]
        except ChildFailedError as failure:
            sys.stderr.write(digest(failure.failures, plan.layout, plan.settings.log_dir))
            return 1
        except SignalException as ended:
            number = int(ended.sigval)
            sys.stderr.write(f"accel launch: ended by {ended.sigval.name}; no process is left\n")
            return 128 + number
    return 0
