"""Processes that were started together and cannot meet: a script that knows nothing of the others is refused."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from accel_runtime.errors import UsageError

OPTIMIZER = "torch.optim.optimizer"
# With one of these imported, processes may meet otherwise than through torch.
OTHER_ENGINES = ("accel_runtime.resolve", "accelerate", "deepspeed", "horovod", "jax", "mpi4py", "ray", "torch_xla")


def refuse_strangers(script: str, processes: str) -> None:
    """At the first optimizer step of a script whose processes have not met and have nothing to meet by.

    Each would train a copy on all of the data, and overwrite the others' files. Torch is left for the script to import.
    """

    def watch(optimizer: ModuleType) -> None:
        seen: list[bool] = []

        def check(*_: object) -> None:
            if seen:
                return
            seen.append(True)  # and the hook stays: torch goes through its hooks meanwhile, and none may leave
            import torch.distributed as dist

            if not (dist.is_available() and dist.is_initialized()) and not any(map(sys.modules.get, OTHER_ENGINES)):
                raise UsageError(
                    f"{script} trains on {processes} processes that know nothing of each other: each would train a copy "
                    f"on all of the data and overwrite the others' files; migrate it with `accel-migrate {script}`, or "
                    f"start it with `python {script}`"
                )

        optimizer.register_optimizer_step_pre_hook(check)

    sys.meta_path.insert(0, _AfterImport(OPTIMIZER, watch))


class _AfterImport:
    """Calls a function with a module as soon as somebody has imported it."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self.name, self.then = name, then

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            # Any: a loader's method is replaced by one that does more.
            loader: Any = spec.loader
            execute = loader.exec_module

            def execute_and_call(module: ModuleType) -> None:
                execute(module)
                self.then(module)

            loader.exec_module = execute_and_call
        return spec
