"""How accel-migrate scales: 1,000 scripts of real size, on one process and on every core, and the memory it takes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures"
FILES = 1_000
LINES = 250  # the length of a typical training script


def main() -> None:
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        few, many = Path(folder) / "few", Path(folder) / "many"
        lines = make_project(few, FILES // 10)
        make_project(many, FILES)
        print(f"{FILES:,} scripts of {lines} lines, accel-migrate --diff, {cores} cores")
        measure(few, 1)
        small = peak_megabytes()
        alone = measure(many, 1)
        large = peak_megabytes()
        spread = measure(many, cores)
        for jobs, seconds in ((1, alone), (cores, spread)):
            print(f"-j {jobs:<2}  {seconds:7.1f} s  {1000 * seconds / FILES:5.1f} ms per file")
        print(f"-j {cores} is {alone / spread:.2f} times as fast as -j 1")
        print(f"memory: {small:.0f} MB at the most for {FILES // 10} files, {large:.0f} MB for {FILES:,}")


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


def measure(folder: Path, jobs: int) -> float:
    start = time.monotonic()
    command = [sys.executable, "-m", "accel_migrate", "--diff", "-q", "-j", str(jobs), str(folder)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL)
    assert done.returncode == 1, "every copy has something to change"
    return time.monotonic() - start


def peak_megabytes() -> float:
    """The largest process that has ended so far."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


if __name__ == "__main__":
    main()
