"""How much the codemod costs over libcst's own parse and print, in CPU time of one process and in one run.

The folder holds scripts to measure on; without it, the fixtures are measured. Start-up is left out. Printed: the ratio of
the whole pipeline to the floor with and without verification, over the files that are migrated, and what a file
without a training loop costs.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from pathlib import Path

import libcst
from accel_migrate import check, pipeline, rewriting, verify
from accel_migrate.errors import SourceError
from accel_migrate.plan import Status
from accel_migrate.source import Source

ROUNDS = 5


def cpu(work: Callable[[], object]) -> float:
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def sources(folder: Path) -> list[Source]:
    pattern = "before.py" if folder.name == "fixtures" else "*.py"
    found = []
    for path in sorted(folder.rglob(pattern)):
        source = Source.from_bytes(path, path.read_bytes())
        try:
            source.tree  # noqa: B018  parse errors are not what is measured
        except SourceError:
            continue
        found.append(source)
    return found


def fresh(source: Source) -> Source:
    return Source.from_bytes(source.path, source.data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent.parent / "fixtures")
    everything = sources(parser.parse_args().folder)
    migrated = [s for s in everything if pipeline.migrate([fresh(s)])[0].status is Status.MIGRATED]
    if not migrated:
        parser.error("no script in this folder is migrated, so there is nothing to measure")
    others = [s for s in everything if s not in migrated]
    checked, unchecked, floors, passed = [], [], [], []
    stable = pipeline._check_stable
    for _ in range(ROUNDS):
        floors.append(cpu(lambda: [libcst.parse_module(s.text).code for s in migrated]))
        checked.append(cpu(lambda: [pipeline.migrate([fresh(s)]) for s in migrated]))
        pipeline._check_stable = lambda result, settings: None  # type: ignore[assignment]
        rewriting.check = lambda source, text: Source(source.path, b"", text, "utf-8", False)
        rewriting.violations = lambda originals, results, applied: iter(())
        unchecked.append(cpu(lambda: [pipeline.migrate([fresh(s)]) for s in migrated]))
        pipeline._check_stable, rewriting.check, rewriting.violations = stable, verify.check, check.violations
        passed.append(cpu(lambda: [pipeline.migrate([fresh(s)]) for s in others]))
    floor = min(floors)
    lines = sum(s.text.count("\n") for s in migrated)
    other_lines = sum(s.text.count("\n") for s in others)
    print(f"{len(migrated)} migrated scripts, {lines} lines; CPU time, best of {ROUNDS} rounds in one run")
    print(f"libcst parse + print (the floor)   {floor / lines * 1e6:6.0f} us a line   1.00")
    print(
        f"migrate, without verification      {min(unchecked) / lines * 1e6:6.0f} us a line   {min(unchecked) / floor:.2f}"
    )
    print(
        f"migrate, verified                  {min(checked) / lines * 1e6:6.0f} us a line   {min(checked) / floor:.2f}"
    )
    if other_lines:
        print(f"left alone ({len(others)} files)              {min(passed) / other_lines * 1e6:6.0f} us a line")


if __name__ == "__main__":
    main()
