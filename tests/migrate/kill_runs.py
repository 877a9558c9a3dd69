"""Forks in-place runs over a folder of large files, kills each at a random moment, and counts what it finds."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from accel_migrate import pipeline, run
from accel_migrate.options import Options

from tests.migrate import fake_codemod

FILES = 6
BEFORE = b"import torch\nx.cuda()\n" + b"y = '%s'\n" % (b"long lines take long to write and short to parse" * 1_500)
AFTER = BEFORE.replace(b".cuda()", b"")


def main(folder: Path, kills: int) -> None:
    pipeline.migrate = fake_codemod.migrate  # type: ignore[assignment]
    chance = random.Random(6)
    os.chdir(folder)
    project = Path("project")
    project.mkdir()
    whole_run = _time_of_a_run(project)
    killed = damaged = midway = 0
    while killed < kills:
        _reset(project)
        child = os.fork()
        if child == 0:
            _run(project)
        time.sleep(chance.uniform(0, whole_run))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status)
        found = [file.read_bytes() for file in project.glob("*.py")]
        damaged += sum(data not in (BEFORE, AFTER) for data in found) + (len(found) != FILES)
        midway += BEFORE in found and AFTER in found
    print(f"killed={killed} damaged={damaged} midway={midway}")


def _reset(project: Path) -> None:
    for file in project.iterdir():
        file.unlink()
    for number in range(FILES):
        (project / f"file{number}.py").write_bytes(BEFORE)


def _run(project: Path) -> None:
    os._exit(run.run(Options(paths=(project,), quiet=True, jobs=1)))


def _time_of_a_run(project: Path) -> float:
    _reset(project)
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        _run(project)
    os.waitpid(child, 0)
    return time.monotonic() - start


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
