"""`python -m tests.gpu_stand_in SCRIPT ARGUMENTS...`: runs a script as on a machine with GPUs."""

from __future__ import annotations

import argparse
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from tests.gpu_stand_in import gpus


class Enough(BaseException):
    """The steps that were asked for are done; no `except Exception` of the script stops it."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu_stand_in", description=__doc__)
    parser.add_argument("--gpus", type=int, default=2, help="how many GPUs the machine has (default 2)")
    parser.add_argument(
        "--steps", type=int, help="end after so many steps of optimizers (default: when the script ends)"
    )
    parser.add_argument("--losses", action="store_true", help="print what reaches each backward pass")
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    done, error = run(asked.script, asked.arguments, asked.gpus, asked.steps, asked.losses)
    print(f"{asked.script}: {done} steps of optimizers on a machine with {asked.gpus} GPUs", file=sys.stderr)
    if error:
        print(error, file=sys.stderr)
    return bool(error)


def run(script: Path, arguments: list[str], count: int, steps: int | None, losses: bool) -> tuple[int, str]:
    """How many steps were done, and why the script failed, if it did."""
    done = 0
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent.resolve()))

    def counted(optimizer: torch.optim.Optimizer, args: Any, settings: Any) -> None:
        nonlocal done
        done += 1
        if steps is not None and done >= steps:
            raise Enough

    register_optimizer_step_post_hook(counted)
    plain = torch.autograd.backward

    def backward(tensors: Any, *args: Any, **settings: Any) -> None:
        for tensor in [tensors] if isinstance(tensors, torch.Tensor) else tensors:
            print(f"loss {tensor.detach().double().sum().item()} on {tensor.device}", file=sys.stderr)
        plain(tensors, *args, **settings)

    if losses:
        torch.autograd.backward = backward
    try:
        with gpus(count):
            runpy.run_path(str(script), run_name="__main__")
    except Enough:
        pass
    except SystemExit as ended:
        return done, "" if ended.code in (None, 0) else f"exit {ended.code}"
    except BaseException:
        return done, traceback.format_exc()
    return done, ""


if __name__ == "__main__":
    sys.exit(main())
