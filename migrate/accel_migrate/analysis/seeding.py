"""Seeds: which random numbers all processes draw alike, as far as that can be told."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from accel_migrate.analysis.imported import loaded_with
from accel_migrate.analysis.scopes import Module
from accel_migrate.analysis.training import Script, Training

LIBRARIES = ("torch", "numpy", "random")
_SEEDS = {
    "torch.manual_seed": ("torch",), "torch.random.manual_seed": ("torch",), "torch.seed": (), "numpy.random.seed": ("numpy",),
    "random.seed": ("random",), "transformers.set_seed": LIBRARIES, "transformers.trainer_utils.set_seed": LIBRARIES,
    "lightning.seed_everything": LIBRARIES, "pytorch_lightning.seed_everything": LIBRARIES,
    "lightning.pytorch.seed_everything": LIBRARIES,
}  # fmt: skip
_DRAWS = {
    "torch": {
        "rand", "randn", "randint", "normal", "randn_like", "rand_like", "randint_like", "bernoulli", "randperm", "multinomial",
        "poisson",
    },
}  # fmt: skip


class Seeded(Enum):
    ALIKE = "alike"  # the same seed on every process
    APART = "apart"  # by the rank, or not at all
    UNKNOWN = "unknown"  # by something that is not visible to the analysis


@dataclass(frozen=True, eq=False)
class Seed:
    """How one library is seeded; `call` is where, if that is in sight."""

    seeded: Seeded
    module: Module | None = None
    call: ast.Call | None = None


class Seeding:
    """What is known of the seeds in the files that a training runs with."""

    def __init__(self, script: Script, training: Training) -> None:
        self.roles = script.roles
        self.graph = script.graph
        self.flow = training.flow
        self.files = loaded_with(script.project, training.place.module)

    def of(self, library: str) -> Seed:
        """How a library is seeded: alike only if every seed of it that runs is the same on all processes."""
        found = [(module, call) for module, call in self._calls() if library in _libraries(module, call)]
        if any(not call.args or self.flow.depends(module, call.args[0]) for module, call in found):
            module, call = found[0]
            return Seed(Seeded.APART, module, call)
        if found:
            return Seed(Seeded.ALIKE, *found[0])
        return Seed(Seeded.UNKNOWN if self._may_be_seeded() else Seeded.APART)

    def drawn(self) -> dict[str, tuple[Module, ast.Call]]:
        """The libraries that are drawn from, each with the first call that does."""
        found: dict[str, tuple[Module, ast.Call]] = {}
        for module, call in self._calls():
            library = library_of(module, call)
            if library is not None:
                found.setdefault(library, (module, call))
        return found

    def _calls(self) -> Iterable[tuple[Module, ast.Call]]:
        """The calls that run, as far as that can be told."""
        for module in self.files:
            for call in module.calls:
                function = module.scope(call).function
                if function is None or function in self.graph.sites or _is_method(module, call):
                    yield module, call

    def _may_be_seeded(self) -> bool:
        """Whether something is called for its name that is out of sight: `from toolbox import set_seed`."""
        return any(
            "seed" in (module.qualified(call.func) or "").rpartition(".")[2]
            and self.roles.target(module, call) is None
            and not (module.qualified(call.func) or "").startswith(("torch.", "numpy.", "random."))
            for module in self.files
            for call in module.calls
        )


def library_of(module: Module, call: ast.Call) -> str | None:
    """The library whose global generator a call draws from."""
    dotted = module.qualified(call.func) or ""
    owner, _, name = dotted.rpartition(".")
    if any(keyword.arg == "generator" for keyword in call.keywords):
        return None
    if owner == "torch" and name in _DRAWS["torch"]:
        return "torch"
    if owner == "numpy.random" and name not in ("seed", "RandomState", "default_rng", "get_state", "set_state"):
        return "numpy"
    if owner == "random" and name not in ("seed", "Random", "getstate", "setstate", "SystemRandom"):
        return "random"
    return None


def _libraries(module: Module, call: ast.Call) -> tuple[str, ...]:
    return _SEEDS.get(module.qualified(call.func) or "", ())


def _is_method(module: Module, call: ast.Call) -> bool:
    return module.scope(call).owner_class is not None
