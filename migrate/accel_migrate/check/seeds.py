"""What a process has for its own without any data: what it draws unseeded, the clock, its own games."""

from __future__ import annotations

import ast
from functools import cached_property

from accel_migrate.check.evidence import Side
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.program import File, Function

_CLOCKS = frozenset(["time.time", "time.perf_counter", "time.monotonic", "time.process_time", "datetime.datetime.now"])
_DRAWS = {
    "random": ("random", "randint", "uniform", "choice", "choices", "sample", "gauss", "randrange", "shuffle"),
    "numpy.random": (
        "rand", "randn", "randint", "random", "uniform", "choice", "normal", "permutation", "binomial", "random_sample",
    ),
    "torch": ("rand", "randn", "randint", "randperm", "bernoulli", "multinomial", "normal"),
}  # fmt: skip
_SEEDING = {"random": "random.seed", "numpy.random": "numpy.random.seed", "torch": "torch.manual_seed"}
_FOR_ALL = frozenset(["set_seed", "seed_everything"])  # of libraries


class Seeds:
    """Whether the result of a call differs from process to process by itself."""

    def __init__(self, side: Side) -> None:
        self._side = side

    def of(self, file: File, call: ast.Call) -> str:
        """What the result of a call comes from, if each process has its own; else nothing."""
        dotted = file.qualified(call.func) or ""
        if dotted in _CLOCKS:
            return "the clock"
        module, _, name = dotted.rpartition(".")
        if name in _DRAWS.get(module, ()) and not any(keyword.arg == "generator" for keyword in call.keywords):
            return "" if self._is_seeded(module) else f"what each process draws by `{unparse(call)[:40]}`"
        if isinstance(call.func, ast.Attribute) and not dotted and not self._side.flows.callees.get(call):
            if call.func.attr.startswith("suggest_"):  # of a search for hyperparameters
                return f"what each process draws by `{unparse(call)[:40]}`"
            if call.func.attr == "sample" and not self._is_seeded("torch"):
                return f"what each process draws by `{unparse(call)[:40]}`"
            if call.func.attr == "step" and _is_answer(file, call) and not self.games_alike:
                return "each process's own games"
        return ""

    def order_of(self, call: ast.Call) -> str:
        """How a loader that is not prepared differs on each process: shuffled without a seed, and cut at its end."""
        asked = {keyword.arg: keyword.value for keyword in call.keywords}
        drawn = [asked.get("shuffle"), asked.get("drop_last")]
        if self._is_seeded("torch") or any(v is None or (isinstance(v, ast.Constant) and not v.value) for v in drawn):
            return ""
        return f"the samples that each process draws by `{unparse(call)[:40]}`"

    @cached_property
    def games_alike(self) -> bool:
        """Whether torch and an environment are always given a seed: then all processes play the same games."""
        names = {getattr(call.func, "attr", "") for _, call in self._certain}
        given = any(keyword.arg == "seed" for _, call in self._certain for keyword in call.keywords)
        texts = {unparse(call.func) for _, call in self._side.calls if isinstance(call.func, ast.Attribute)}
        drawn = {text.rpartition("action_space")[2] for text in texts if "action_space" in text}
        if ".sample" in drawn and ".seed" not in drawn:
            return False  # actions are drawn by a generator of their own
        return self._is_seeded("torch") and (given or "seed" in names)

    def _is_seeded(self, module: str) -> bool:
        return any(
            file.qualified(call.func) == _SEEDING[module]
            or unparse(call.func).rpartition(".")[2] in _FOR_ALL
            or unparse(call.func) == _SEEDING[module]
            for file, call in self._certain
        )

    @cached_property
    def _certain(self) -> list[tuple[File, ast.Call]]:
        """Calls about seeds that every run makes, as far as no test that speaks of a seed stands above them."""
        about = [(f, c) for f, c in self._side.calls if "seed" in unparse(c)]
        return [(f, c) for f, c in about if not self._is_optional(f, c, frozenset())]

    def _is_optional(self, file: File, call: ast.Call, seen: frozenset[Function]) -> bool:
        """Whether a seed is given only if one was asked for: `if args.seed: torch.manual_seed(args.seed)`."""
        if any(isinstance(above, ast.If) and "seed" in unparse(above.test) for above in file.ancestors(call)):
            return True
        function = file.scope(call).function.node
        if not isinstance(function, Function) or function in seen:
            return False
        sites = self._side.above(function)
        return bool(sites) and all(self._is_optional(s.file, s.call, seen | {function}) for s in sites)


def _is_answer(file: File, call: ast.Call) -> bool:
    """`state, reward, done, info = env.step(action)`."""
    above = file.parents[call]
    return isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Tuple) and len(above.targets[0].elts) >= 3
