"""What this project does, in one screen: migrate a plain script, train it before and after, compare."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
PLAIN_SCRIPT = HERE.parent / "fixtures" / "train_and_evaluate" / "before.py"
MIGRATE = [sys.executable, "-m", "accel_migrate"]
LAUNCH = [sys.executable, "-m", "accel_runtime", "launch"]
RECORD = str(HERE / "record.py")

console = Console(highlight=False)


@dataclass(frozen=True)
class Training:
    """One way to run the script, as a person would type it."""

    title: str
    typed: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    losses: tuple[tuple[float, ...], ...]  # of each process
    accuracy: str

    @property
    def steps(self) -> list[float]:
        """The loss of each step: processes hold equal shares of the batch, so it is the mean of theirs."""
        return [sum(shares) / len(shares) for shares in zip(*self.losses, strict=True)]


# On two processes each takes half the batch, so that every step sees the same 40 points in all three trainings.
TRAININGS = (
    Training(
        "original",
        "python train.py --batch-size 40",
        (sys.executable, RECORD, "train.py", "--batch-size", "40"),
    ),
    Training(
        "migrated, 1 process",
        "python migrated.py --batch-size 40",
        (sys.executable, RECORD, "migrated.py", "--batch-size", "40"),
    ),
    Training(
        "migrated, 2 processes",
        "accel launch --cpu --num-processes 2 migrated.py --batch-size 20",
        (*LAUNCH, "--cpu", "--num-processes", "2", RECORD, "migrated.py", "--batch-size", "20"),
    ),
)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="accel-demo-") as folder:
        work = Path(folder)
        shutil.copy(PLAIN_SCRIPT, work / "train.py")
        show_diff(work)
        results = [run(training, work) for training in TRAININGS]
    console.print()
    console.print(table(results))
    sys.exit(0 if verdict(*results) else 1)


def show_diff(work: Path) -> None:
    """Print what the codemod changes in train.py, and write the result beside it."""
    console.print("[bold]$ accel-migrate train.py --diff[/]")
    color = "always" if console.is_terminal else "never"
    subprocess.run([*MIGRATE, "train.py", "--diff", "--quiet", "--color", color], cwd=work, check=False)
    subprocess.run([*MIGRATE, "train.py", "--output", "migrated.py", "--quiet"], cwd=work, check=True)
    console.print()


def run(training: Training, work: Path) -> Result:
    recorded = Path(tempfile.mkdtemp(dir=work))
    # Without GPUs all three run on the same hardware; one thread each, so that two processes find a core each.
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "DEMO_LOSSES": str(recorded)}
    console.print(f"[bold]$ {training.typed}[/]")
    done = subprocess.run(training.command, cwd=work, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{training.typed} failed:\n{done.stdout}{done.stderr}")
    console.print(f"[dim]{done.stdout.splitlines()[-1]}[/]")
    losses = [path.read_text().split() for path in sorted(recorded.iterdir())]
    return Result(
        losses=tuple(tuple(float.fromhex(loss) for loss in each) for each in losses),
        accuracy=re.findall(r"accuracy (\S+) on", done.stdout)[-1],
    )


def table(results: list[Result]) -> Table:
    made = Table("", *[training.title for training in TRAININGS], title="The same training, three times")
    made.add_row("steps", *[str(len(result.steps)) for result in results])
    made.add_row("first loss", *[f"{result.steps[0]:.8f}" for result in results])
    made.add_row("last loss", *[f"{result.steps[-1]:.8f}" for result in results])
    made.add_row("accuracy", *[result.accuracy for result in results])
    return made


def verdict(original: Result, one: Result, two: Result) -> bool:
    """Print whether the migrated script trained as the original did; on one process that means: to the bit."""
    apart = max(abs(a - b) for a, b in zip(original.steps, two.steps, strict=True))
    equal = original.losses == one.losses
    if equal:
        console.print(f"[bold green]On one process all {len(one.steps)} losses are equal to the bit.[/]", end=" ")
    else:
        step = next(i for i, (a, b) in enumerate(zip(original.steps, one.steps, strict=True)) if a != b)
        console.print(f"[bold red]On one process the losses differ, first at step {step}.[/]", end=" ")
    console.print(f"On two they add up in another order: at most {apart:.0e} apart.")
    return equal


if __name__ == "__main__":
    main()
