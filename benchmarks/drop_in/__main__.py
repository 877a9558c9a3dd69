"""Runs Accelerate's examples and transformers' no_trainer scripts with only the import swapped, beside Accelerate itself.

    PYTHON benchmarks/drop_in ACCELERATE TRANSFORMERS [--only NAME ...] [--processes 1 2] [--folder FOLDER] [--json FILE]

ACCELERATE and TRANSFORMERS are checkouts of the two repositories. PYTHON has accelerate, transformers, datasets, evaluate,
scikit-learn, schedulefree, timm, torchvision, albumentations, torchmetrics, pycocotools and nltk. Data, metrics and tiny
models are made in a working folder under the names that the scripts ask the hub for; nothing is downloaded. Every loss that
reaches a backward pass, the weights at the end and the printed figures are compared.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
IMPORT = re.compile(r"^(\s*(?:from|import)\s+)accelerate\b", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("accelerate", type=_absolute, help="a checkout of Accelerate's repository")
    parser.add_argument("transformers", type=_absolute, help="a checkout of transformers' repository")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="scripts whose name has this in it")
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--folder", type=_absolute, help="keeps the data and Accelerate's results, for the next time")
    parser.add_argument(
        "--json", type=_absolute, help="what is compared goes here, and what is here already is not run again"
    )
    asked = parser.parse_args()
    checkouts = {"accelerate": asked.accelerate, "transformers": asked.transformers}
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        _settle(folder)
        rows = json.loads(asked.json.read_text()) if asked.json and asked.json.exists() else []
        done = {(row["script"], row["processes"]) for row in rows}
        for found in _found(checkouts, folder, asked.only, done, asked.processes):
            for row in found:
                print(f"{row['script']:46} {row['processes']}p {row['run']:16} {row['outcome']}", flush=True)
            rows += found
            if asked.json:
                asked.json.write_text(json.dumps(rows, indent=2) + "\n")
    return any(row["outcome"].startswith("!") for row in rows)


def _absolute(path: str) -> Path:
    return Path(path).absolute()


def _settle(folder: Path) -> None:
    """The environment of all runs, before any library reads it; and the data, once."""
    os.environ.update(
        HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_EVALUATE_OFFLINE="1", HF_HOME=str(folder / "home"),
        NLTK_DATA=str(folder / "hub" / "nltk_data"), OMP_NUM_THREADS="1", ACCELERATE_USE_CPU="true",
        TOKENIZERS_PARALLELISM="false", DS_ACCELERATOR="cpu", NO_ALBUMENTATIONS_UPDATE="1",
    )  # fmt: skip
    sys.path.insert(0, str(ROOT / "runtime"))
    hub = folder / "hub"
    if not (hub / "made").exists():
        from making import make

        hub.mkdir(exist_ok=True)
        os.chdir(hub)
        make()
        (hub / "made").touch()


def _found(
    checkouts: dict[str, Path], folder: Path, only: list[str], done: set[tuple[str, int]], processes: list[int]
) -> Iterator[list[dict[str, Any]]]:
    """The rows of one script on so many processes, after another."""
    # Here, when the environment is settled.
    import comparing
    from cases import EXAMPLES, SCRIPTS

    _load(folder / "hub")
    chosen = [(checkouts["accelerate"], case) for case in EXAMPLES] + [
        (checkouts["transformers"], case) for case in SCRIPTS
    ]
    for checkout, case in chosen:
        if only and not any(part in case.name for part in only):
            continue
        text = (checkout / case.script).read_text()
        for old, new in case.edits.items():
            if old not in text:
                raise SystemExit(f"{case.script} has no {old!r} to replace")
            text = text.replace(old, new)
        beside = list((checkout / case.script).parent.glob("utils_*.py"))
        sides = comparing.Sides(folder, case, text, IMPORT.sub(r"\1accel_runtime", text), beside, _version())
        for count in processes:
            if (case.name, count) not in done:
                outcomes = comparing.compared(sides, count)
                yield [{"script": case.name, "processes": count, "run": run, "outcome": text} for run, text in outcomes]


def _load(hub: Path) -> None:
    """What takes seconds to import, and to do for the first time, and is there when a run is forked."""
    import accel_runtime.accelerator  # noqa: F401
    import accelerate.accelerator  # noqa: F401
    import datasets  # noqa: F401
    import evaluate  # noqa: F401
    import transformers

    transformers.AutoModelForSequenceClassification.from_pretrained(hub / "bert-base-cased")


def _version() -> str:
    """Changes when a stored result of Accelerate no longer is what a run would give."""
    sources = (Path(__file__).parent / f"{name}.py" for name in ("making", "running"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()[:8]


if __name__ == "__main__":
    sys.exit(main())
