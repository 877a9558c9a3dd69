"""Runs a script as it is and writes down every loss that reaches a backward pass, to the bit.

    DEMO_LOSSES=FOLDER python record.py SCRIPT [ARGUMENT...]

FOLDER gets one file for each process, named after its rank, with one hexadecimal number for each step.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch


def record(folder: Path) -> None:
    """From here on, each backward pass of this process leaves a line in `folder`."""
    lines = (folder / os.environ.get("RANK", "0")).open("w")
    plain = torch.autograd.backward

    def backward(loss: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        print(float(loss).hex(), file=lines, flush=True)
        plain(loss, *args, **kwargs)

    torch.autograd.backward = backward  # type: ignore[assignment]


if __name__ == "__main__":
    record(Path(os.environ["DEMO_LOSSES"]))
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
