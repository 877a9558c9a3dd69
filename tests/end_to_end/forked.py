"""Starts the jobs of a proof in forked processes that have torch already: the same recorder, the same scripts."""

from __future__ import annotations

import faulthandler
import os
import runpy
import sys
import time
import traceback
from multiprocessing import connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import torch
import torch.distributed as dist
from accel_migrate.proof.recorder import watch
from accel_migrate.proof.runs import Ended, Job

from tests.end_to_end.runs import SERVER, _free_port, _part, _world


def start(job: Job) -> Ended:
    """As accel_migrate.proof.runs.start does, without a new interpreter; ranks find what a launcher would set."""
    port = _free_port()
    worlds = [_world(rank, job.processes, port) for rank in range(job.processes)] if job.processes > 1 else [{}]
    children = [SERVER.Process(target=_live, args=(job, world)) for world in worlds]
    for child in children:
        child.start()
    in_time = _wait(children, job.timeout)
    codes = [abs(child.exitcode or 0) for child in children]
    output, errors = ("".join(_text(job, rank, kind) for rank in range(len(worlds))) for kind in ("out", "err"))
    return Ended(max(codes) if in_time else None, output, errors)


def _wait(children: list[ForkServerProcess], seconds: float) -> bool:
    """Whether all ended by themselves; once one has failed or time is up, the others are ended: they wait for it."""
    deadline = time.monotonic() + seconds
    running = list(children)
    while running and time.monotonic() < deadline and not any(child.exitcode for child in children):
        connection.wait([child.sentinel for child in running], timeout=deadline - time.monotonic())
        running = [child for child in running if child.is_alive()]
    for child in running:
        child.kill()
    for child in children:
        child.join()
    return not running or any(child.exitcode not in (0, -9) for child in children)


def _live(job: Job, world: dict[str, str]) -> None:
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(job.timeout, exit=True)
    code = 1
    try:
        code = _child(job, world)
    finally:
        os._exit(code)  # nothing of what the script left is torn down


def _child(job: Job, world: dict[str, str]) -> int:
    for number, kind in ((1, "out"), (2, "err")):
        os.dup2(os.open(job.folder / f"{kind}-{world.get('RANK', '0')}", os.O_CREAT | os.O_WRONLY), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
    os.environ.update({**job.environment(os.environ), **world})
    if job.processes > 1:
        os.environ.update(ACCEL_CPU="1", **({"ACCEL_SPLIT_BATCHES": "1"} if job.split else {}))
    dist.destroy_process_group = _part
    os.chdir(job.copy / job.target.folder)
    sys.argv = [job.target.script, *job.target.arguments]
    sys.path.insert(0, str(Path(job.target.script).resolve().parent))
    watch.before_torch(dict(job.settings))
    watched = watch.install(torch, dict(job.settings))
    code = 0
    try:
        runpy.run_path(job.target.script, run_name="__main__")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except BaseException:
        traceback.print_exc()
        code = 1
    watched.ended()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _text(job: Job, rank: int, kind: str) -> str:
    written = job.folder / f"{kind}-{rank}"
    return written.read_text(errors="replace") if written.exists() else ""
