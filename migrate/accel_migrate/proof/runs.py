"""Starts the scripts of a proof as processes of their own, and brings back what they did."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from accel_migrate.proof.made_files import Shape, make
from accel_migrate.proof.record import Trace, traces
from accel_migrate.proof.scratch import Project
from accel_migrate.proof.shrink import Cut, shrink
from accel_migrate.proof.step.graph import Steps, steps_of

RECORDER = Path(__file__).parent / "recorder"
SEED = 20
# A script of a launcher asks for these when it joins the others.
LAUNCHED = re.compile(r"KeyError: '(?:LOCAL_)?(?:RANK|WORLD_SIZE)'|environment variable (?:RANK|WORLD_SIZE) expected")


@dataclass(frozen=True, slots=True)
class Target:
    """What is run: a script of the project, or a module as for `python -m`, with its arguments."""

    script: str  # relative to the folder it is run in, or the name of the module
    folder: str = "."  # relative to the project
    is_module: bool = False
    arguments: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        return [*(["-m"] if self.is_module else []), self.script, *self.arguments]


@dataclass(frozen=True, slots=True)
class Job:
    """One run, ready to start: `processes` of them when it goes through a launcher."""

    python: str
    target: Target
    copy: Path
    folder: Path  # of the journals
    settings: Mapping[str, object]  # of the recorder
    timeout: float
    processes: int = 1
    split: bool = True  # one batch of the script is sharded, so that each step consumes what it did
    on_cpu: bool = True
    alone_in_group: bool = False  # finds the variables of a launcher, as the only process
    pretended: int = 0  # of so many processes it believes itself the first, and ends after its first steps

    @property
    def command(self) -> list[str]:
        if self.processes == 1:
            return [self.python, *self.target.command]
        flags = [*(["--cpu"] if self.on_cpu else []), *(["--split-batches"] if self.split else [])]
        launch = ["-m", "accel_runtime", "launch", "--num-processes", str(self.processes), *flags]
        return [self.python, *launch, *self.target.command]

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        paths = [str(RECORDER), *_in_copy(base.get("PYTHONPATH", ""), self.settings)]
        own = {
            "MIGRATION_PROOF": json.dumps(dict(self.settings)),
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONHASHSEED": "0",
            "ACCEL_SEED": "none",  # the recorder has seeded the process as it does one alone
            "PYTHONDONTWRITEBYTECODE": "1",
            # Sums of floats depend on how many threads share them; one process and many must have as many.
            "OMP_NUM_THREADS": "1",
            "MPLBACKEND": "Agg",
        }
        if self.pretended:
            own |= {"RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
            own |= {"WORLD_SIZE": str(self.pretended), "LOCAL_WORLD_SIZE": str(self.pretended)}
            own |= {"ACCEL_CPU": "1", "ACCEL_SPLIT_BATCHES": "1"}
        return {**base, **own, **(_alone() if self.alone_in_group else {})}


@dataclass(frozen=True, slots=True)
class Ended:
    """How the process of a job ended; `code` is None when it had to be stopped."""

    code: int | None
    output: str
    errors: str
    seconds: float = 0.0


Start = Callable[[Job], Ended]


@dataclass(frozen=True, slots=True)
class StandIn:
    """Something that a run had in the place of what the script asks for."""

    what: str
    how: str


@dataclass(frozen=True, slots=True)
class Run:
    """What a script did, rank by rank."""

    traces: tuple[Trace, ...]
    ended: Ended
    seconds_allowed: float
    asked_for: str = ""  # the last host on the network that was asked for
    stand_ins: tuple[StandIn, ...] = ()
    steps: tuple[Steps, ...] = ()  # of each rank, where they were traced

    @property
    def failed(self) -> bool:
        return self.ended.code != 0


@dataclass(frozen=True)
class Runner:
    """Where runs take place: each in a fresh copy of the project, under the same conditions."""

    project: Project
    scratch: Path
    python: str
    steps: int
    timeout: float
    pretend_cpu: bool = False
    start: Start = lambda job: start(job)
    stand_ins: str = ""  # "small", "true lengths", or none at all
    shapes: tuple[Shape, ...] = ()  # of files that are made up
    cuts: tuple[Cut, ...] = ()  # of constants that are too large here

    def run(
        self,
        name: str,
        target: Target,
        rewrites: Mapping[Path, bytes],
        *,
        still: bool = False,
        nudged: bool = False,
        observe: bool = False,
        trace: bool = False,
        **how: object,
    ) -> Run:
        copy, folder = self.scratch / name / "project", self.scratch / name / "journal"
        shutil.rmtree(self.scratch / name, ignore_errors=True)
        folder.mkdir(parents=True)
        self.project.copy(copy, rewrites)
        for shape in self.shapes:
            make(shape, copy / target.folder)
        for cut in self.cuts:
            shrink(cut, copy)
        settings = {
            "folder": str(folder),
            "copy": str(copy),
            "project": str(self.project.root),
            "data": [str(path) for path in self.project.data],
            "steps": self.steps,
            "seed": SEED,
            "on_cpu": self.pretend_cpu,
            "still": still,
            "nudged": nudged,
            "observe": observe,
            "stand_ins": self.stand_ins,
            "trace": trace,
            "pretended": how.get("pretended", 0),
        }
        job = replace(Job(self.python, target, copy, folder, settings, self.timeout), **how)  # type: ignore[arg-type]
        ended = self.start(job)
        asked = folder / "network"
        network = asked.read_text() if asked.exists() else ""
        files = [StandIn(str(shape.path), shape.told) for shape in self.shapes]
        cuts = [StandIn(cut.name, cut.told) for cut in self.cuts]
        stand_ins = (*files, *cuts, *_stand_ins(folder / "stand-ins"))
        run = Run(tuple(traces(folder)), ended, self.timeout, network, stand_ins, steps_of(folder))
        shutil.rmtree(copy, ignore_errors=True)
        if run.failed and not job.alone_in_group and LAUNCHED.search(ended.errors):
            again = {**how, "alone_in_group": True}
            return self.run(name, target, rewrites, still=still, nudged=nudged, observe=observe, trace=trace, **again)
        return run


def _stand_ins(told: Path) -> list[StandIn]:
    """What the processes of a run told, each thing once."""
    lines = told.read_text("utf-8").splitlines() if told.exists() else []
    return list(dict.fromkeys(StandIn(*json.loads(line)) for line in lines))


def start(job: Job) -> Ended:
    """Run the job to its end, or to the end of its time; nothing of it is left running."""
    began = time.monotonic()
    process = subprocess.Popen(
        job.command,
        cwd=job.copy / job.target.folder,
        env=job.environment(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=job.timeout)
        return Ended(process.returncode, output, errors, time.monotonic() - began)
    except subprocess.TimeoutExpired:
        _kill(process)
        return Ended(None, *process.communicate())
    finally:
        _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """End the process with all of its group; the ranks of a launcher end with it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _in_copy(paths: str, settings: Mapping[str, object]) -> Sequence[str]:
    """PYTHONPATH, with what leads into the project leading into its copy."""
    project, copy = Path(str(settings["project"])), Path(str(settings["copy"]))
    entries = [Path(entry).absolute() for entry in paths.split(os.pathsep) if entry]
    return [str(copy / e.relative_to(project) if e.is_relative_to(project) else e) for e in entries]


def _alone() -> dict[str, str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    return {**dict(zip(names, "0011", strict=True)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
