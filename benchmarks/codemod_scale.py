"""How accel-migrate scales: 1,000 scripts of real size, on one process and on every core, and the memory it takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures"
FILES = int(os.environ.get("FILES", "1000"))
LINES = 250  # the length of a typical training script

# The command, followed by what it cost: its own time on the processor, that of its workers, and its largest memory.
PROGRAM = """
import json, resource, sys
from accel_migrate.cli import main
try:
    main(sys.argv[1:])
finally:
    me, workers = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cost = [each.ru_utime + each.ru_stime for each in (me, workers)]
    print(json.dumps([*cost, max(me.ru_maxrss, workers.ru_maxrss) / 1024]), file=sys.stderr)
"""


@dataclass(frozen=True)
class Cost:
    seconds: float
    own: float  # seconds on the processor
    workers: float
    megabytes: float


def main() -> None:
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        few, many = Path(folder) / "few", Path(folder) / "many"
        lines = make_project(few, FILES // 10)
        make_project(many, FILES)
        print(f"{FILES:,} scripts of {lines} lines, accel-migrate --diff, {cores} cores")
        small, alone, spread = measure(few, cores), measure(many, 1), measure(many, cores)
    for jobs, cost in ((1, alone), (cores, spread)):
        processor = f"{cost.own:.1f} s on the processor itself, {cost.workers:.1f} s in its workers"
        print(f"-j {jobs:<2}  {cost.seconds:6.1f} s  {1000 * cost.seconds / FILES:5.1f} ms per file  ({processor})")
    print(f"-j {cores} is {alone.seconds / spread.seconds:.2f} times as fast as -j 1")
    # On a busy machine the clock says little; what cannot be divided bounds the speed-up all the same.
    bound = (alone.own + alone.workers) / (spread.own + spread.workers / cores)
    print(f"by processor time, at most {bound:.2f} times on {cores} idle cores")
    print(
        f"memory: {small.megabytes:.0f} MB at the most for {FILES // 10} files, {spread.megabytes:.0f} MB for {FILES}"
    )


def make_project(folder: Path, files: int) -> int:
    """Copies of one script, made as long as a typical one by functions that the codemod must read as well."""
    script = max((path for path in FIXTURES.glob("*/before.py")), key=lambda path: path.stat().st_size).read_text()
    number = 0
    while script.count("\n") < LINES:
        script = script.replace("\n\n\n", f"\n\n\ndef shape_{number}(x):\n    y = x.reshape(-1)\n    return y\n\n\n", 1)
        number += 1
    folder.mkdir()
    for copy in range(files):
        (folder / f"train_{copy:04}.py").write_text(script)
    return script.count("\n")


def measure(folder: Path, jobs: int) -> Cost:
    start = time.monotonic()
    command = [sys.executable, "-c", PROGRAM, "--diff", "-q", "-j", str(jobs), str(folder)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1, f"every copy has something to change\n{done.stderr}"
    return Cost(time.monotonic() - start, *json.loads(done.stderr.splitlines()[-1]))


if __name__ == "__main__":
    main()
