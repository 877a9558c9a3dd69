"""Trains, evaluates, saves and resumes with transformers.Trainer on Accelerate and with `accelerate` being this runtime.

    PYTHON benchmarks/transformers_trainer.py [--processes 1 2] [--accumulation 1 2]

PYTHON has accelerate and transformers. Every logged loss, evaluation, gradient norm and learning rate of the whole run and of
the resumed one, and the weights, are compared: to the bit on one process, within 1e-5 on several.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
from tests.peer_alias import write_alias  # noqa: E402
from tests.trainer_script import SCRIPT  # noqa: E402

# On several processes gradients are summed in an order that the network chooses.
TOLERANCE = 1e-5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--accumulation", nargs="+", type=int, default=[1, 2])
    asked = parser.parse_args()
    if find_spec("accelerate") is None or find_spec("transformers") is None:
        print("accelerate or transformers is not installed here: nothing is compared")
        return 0
    wrong = False
    for processes in asked.processes:
        for accumulation in asked.accumulation:
            theirs, ours = (_trained(side, processes, accumulation) for side in ("accelerate", "accel_runtime"))
            outcome = _outcome(theirs, ours, 0.0 if processes == 1 else TOLERANCE)
            print(f"{processes} processes, accumulation {accumulation}: {outcome}", flush=True)
            wrong = wrong or outcome.startswith("!")
    return int(wrong)


def _trained(side: str, processes: int, accumulation: int) -> dict[str, Any]:
    """What the script found with Accelerate's package, or with the one that is this runtime."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "train.py").write_text(SCRIPT.format(steps=accumulation))
        paths = [write_alias(folder / "alias"), ROOT / "runtime"] if side == "accel_runtime" else []
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
        done = subprocess.run(
            [sys.executable, *(launcher if processes > 1 else []), "train.py"],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, paths)),
                "OMP_NUM_THREADS": "1",
                "HF_HUB_OFFLINE": "1",
                "ACCELERATE_USE_CPU": "true",
            },
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"{side}, {processes} processes: {done.stderr[-2000:]}")
        found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    if found["package"] != side:
        raise SystemExit(f"{found['package']} ran in the place of {side}")
    return found


def _outcome(theirs: dict[str, Any], ours: dict[str, Any], tolerance: float) -> str:
    """One line; it begins with ! where something differs."""
    kept = ("steps", "logs", "weights")
    pairs = [list(_numbers([side[name] for name in kept])) for side in (theirs, ours)]
    if len(pairs[0]) != len(pairs[1]):
        return f"!{len(pairs[0])} and {len(pairs[1])} figures were logged"
    far = [(one, other) for one, other in zip(*pairs) if not math.isclose(one, other, rel_tol=tolerance)]
    if far:
        return f"!{len(far)} of {len(pairs[0])} figures differ: {far[0][0]} and {far[0][1]}"
    resumed = ["ends as if never stopped" if side["equal weights"] else "ends elsewhere" for side in (theirs, ours)]
    equal = "within 1e-5" if tolerance else "to the bit"
    return f"{len(pairs[0])} figures equal {equal}; the resumed run {resumed[0]} there, {resumed[1]} here"


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = [part for key in sorted(value) for part in (len(key), value[key])]
    if isinstance(value, list):
        for part in value:
            yield from _numbers(part)
    else:
        yield float(value)


if __name__ == "__main__":
    sys.exit(main())
