"""Starts the jobs of a proof in forked processes that have torch already: the same recorder, the same scripts."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time
import traceback
from pathlib import Path

import torch
from accel_migrate.proof.recorder import watch
from accel_migrate.proof.runs import Ended, Job

from tests.end_to_end.runs import _free_port, _world

torch.set_num_threads(1)


def start(job: Job) -> Ended:
    """As accel_migrate.proof.runs.start does, without a new interpreter; ranks find what a launcher would set."""
    port = _free_port()
    worlds = [_world(rank, job.processes, port) for rank in range(job.processes)] if job.processes > 1 else [{}]
    children = {_fork(job, world): world.get("RANK", "0") for world in worlds}
    codes = _wait(set(children), job.timeout)
    output, errors = (_texts(job, children.values(), kind) for kind in ("out", "err"))
    return Ended(None if None in codes else max(codes, key=abs), output, errors)  # type: ignore[arg-type]


def _fork(job: Job, world: dict[str, str]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        code = _child(job, world)
    finally:
        os._exit(code)  # never back into the test runner


def _child(job: Job, world: dict[str, str]) -> int:
    # A group of its own: what it starts ends with it.
    os.setsid()
    for number, kind in ((1, "out"), (2, "err")):
        os.dup2(os.open(job.folder / f"{kind}-{world.get('RANK', '0')}", os.O_CREAT | os.O_WRONLY), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
    os.environ.update({**job.environment(os.environ), **world})
    if job.processes > 1:
        os.environ.update(ACCEL_CPU="1", **({"ACCEL_SPLIT_BATCHES": "1"} if job.split else {}))
    os.chdir(job.copy / job.target.folder)
    target = job.target
    sys.argv = [target.script, *target.arguments]
    sys.path.insert(0, str(Path.cwd() if target.is_module else Path(target.script).resolve().parent))
    watch.before_torch(dict(job.settings))
    watched = watch.install(torch, dict(job.settings))
    try:
        (runpy.run_module if target.is_module else runpy.run_path)(target.script, run_name="__main__")  # type: ignore[operator]
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except BaseException:
        traceback.print_exc()
        code = 1
    watched.ended()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _wait(children: set[int], seconds: float) -> list[int | None]:
    """The exit codes; once one has failed or time is up, the others are ended, for they wait for it."""
    deadline = time.monotonic() + seconds
    codes: list[int | None] = []
    while children:
        for child in list(children):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                children.remove(child)
                codes.append(os.waitstatus_to_exitcode(status))
        late = time.monotonic() > deadline
        if children and (late or any(codes)):
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            return [*codes, *([None] if late else [])]
        time.sleep(0.005)
    return codes


def _texts(job: Job, ranks: object, kind: str) -> str:
    return "".join((job.folder / f"{kind}-{rank}").read_text(errors="replace") for rank in ranks)  # type: ignore[attr-defined]
