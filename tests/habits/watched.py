"""`python watched.py [--gpus] SCRIPT`: runs a script, prints each loss, and writes down weights and what files hold.

With `--gpus` as on a machine that has some: see tests/gpu_stand_in.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch


def on_gpus(script: str) -> int:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.gpu_stand_in.__main__ import run

    _, error = run(Path(script), [], 2, None, losses=True)
    print(error, file=sys.stderr)
    return bool(error)


def main() -> None:
    script = sys.argv[-1]
    sys.path.insert(0, str(Path.cwd()))  # where its other files are
    if sys.argv[1] == "--gpus":
        sys.exit(on_gpus(script))
    sys.argv = [script]
    optimizers: list[torch.optim.Optimizer] = []
    plain, made = torch.autograd.backward, torch.optim.Optimizer.__init__

    def backward(tensors: Any, *args: Any, **settings: Any) -> None:
        for tensor in [tensors] if isinstance(tensors, torch.Tensor) else tensors:
            print(f"loss {tensor.detach().double().sum().item()}", file=sys.stderr, flush=True)
        plain(tensors, *args, **settings)

    def keep(self: torch.optim.Optimizer, *args: Any, **settings: Any) -> None:
        made(self, *args, **settings)
        optimizers.append(self)

    torch.autograd.backward = backward
    torch.optim.Optimizer.__init__ = keep  # type: ignore[method-assign]
    runpy.run_path(script, run_name="__main__")
    weights = [
        p.detach().double().sum().item() for o in optimizers for group in o.param_groups for p in group["params"]
    ]
    with open(f"weights.{os.environ.get('RANK', 0)}", "w") as file:
        file.write(" ".join(f"{weight:.6f}" for weight in weights))
    if os.environ.get("RANK", "0") == "0":
        kept = {path.name: read(path) for path in sorted(Path.cwd().glob("*.p[tk]*"))}
        Path("kept").write_text(json.dumps(kept))


def read(path: Path) -> Any:
    try:
        return held(torch.load(path, weights_only=False))
    except Exception as error:  # a class of the script's own is not known here
        return type(error).__name__


def held(thing: Any) -> Any:
    """The keys of a file, at every level; of a whole model its kind."""
    if isinstance(thing, dict):
        return {str(key): held(value) for key, value in thing.items()}
    return type(thing).__name__ if isinstance(thing, torch.nn.Module) else ""


if __name__ == "__main__":
    main()
