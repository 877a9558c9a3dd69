"""What a process has for its own without any data: what it draws by a seed of its own, the clock, its own games.

Our runtime seeds all processes alike, so that they draw alike unless the script seeds them apart, or draws for each sample
of its shard. Accelerate does not: there the script must seed.
"""

from __future__ import annotations

import ast
import re
from functools import cached_property

from accel_migrate.check.evidence import Side
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module

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
# Generators that begin with a number of the machine where they are given none, and what is one.
_OF_MACHINE = frozenset(
    ["numpy.random.default_rng", "numpy.random.RandomState", "random.Random", "random.SystemRandom"]
)
_NUMBERS_OF_MACHINE = frozenset(["os.urandom", "os.getpid", "uuid.uuid4", "secrets.randbelow", "secrets.choice"])
_APART = re.compile(r"rank|process_index|time|now\(|getpid|urandom|uuid|secrets|SystemRandom", re.IGNORECASE)
_EACH_SAMPLE = frozenset(["__getitem__", "__iter__", "__call__", "collate_fn"])
_AUGMENTS = re.compile(
    r"(torchvision\.transforms\.(Rand|ColorJitter|TrivialAugment|Auto|AugMix)|albumentations\.|imgaug\.)\w*"
)


class Seeds:
    """Whether the result of a call differs from process to process by itself."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._alike: dict[str, bool] = {}

    def of(self, file: Module, call: ast.Call) -> str:
        """What the result of a call comes from, if each process has its own; else nothing."""
        dotted = file.qualified(call.func) or ""
        if dotted in _CLOCKS:
            return "the clock"
        module, _, name = dotted.rpartition(".")
        if dotted in _NUMBERS_OF_MACHINE or (dotted in _OF_MACHINE and not _is_given(call)):
            return f"what each process draws by `{unparse(call)[:40]}`"
        if name in _DRAWS.get(module, ()) and not any(keyword.arg == "generator" for keyword in call.keywords):
            return "" if self._is_alike(module) else f"what each process draws by `{unparse(call)[:40]}`"
        if isinstance(call.func, ast.Attribute) and not dotted and not self._side.flows.callees.get(call):
            if call.func.attr.startswith("suggest_"):  # of a search for hyperparameters
                return f"what each process draws by `{unparse(call)[:40]}`"
            if call.func.attr == "sample" and not self._is_alike("torch"):
                return f"what each process draws by `{unparse(call)[:40]}`"
            if call.func.attr == "step" and _is_answer(file, call) and not self.games_alike:
                return "each process's own games"
        return ""

    def order_of(self, call: ast.Call) -> str:
        """How a loader that is not prepared differs on each process: shuffled without a seed, and cut at its end."""
        asked = {keyword.arg: keyword.value for keyword in call.keywords}
        drawn = [asked.get("shuffle"), asked.get("drop_last")]
        if self._is_alike("torch") or any(v is None or (isinstance(v, ast.Constant) and not v.value) for v in drawn):
            return ""
        return f"the samples that each process draws by `{unparse(call)[:40]}`"

    @cached_property
    def games_alike(self) -> bool:
        """Whether torch and an environment are always given a seed: then all processes play the same games."""
        names = {getattr(call.func, "attr", "") for file, call in self._certain if not file.qualified(call.func)}
        given = any(keyword.arg == "seed" for _, call in self._certain for keyword in call.keywords)
        texts = {unparse(call.func) for _, call in self._side.calls if isinstance(call.func, ast.Attribute)}
        drawn = {text.rpartition("action_space")[2] for text in texts if "action_space" in text}
        if ".sample" in drawn and ".seed" not in drawn:
            return False  # actions are drawn by a generator of their own
        return self._is_alike("torch") and (given or "seed" in names)

    def _is_alike(self, module: str) -> bool:
        """Whether all processes draw the same from a library's own generator."""
        if module not in self._alike:
            seeds = [call for file, call in self._side.calls if _seeds(file, call, module)]
            apart = any(not _is_given(call) or _APART.search(unparse(call)) for call in seeds)
            seeded = self._launched or any(_seeds(file, call, module) for file, call in self._certain)
            self._alike[module] = seeded and not apart and not self._is_drawn_for_samples(module)
        return self._alike[module]

    @cached_property
    def _launched(self) -> bool:
        return not any((at.qualified(made.func) or "").startswith("accelerate.") for at, made in self._side.created)

    def _is_drawn_for_samples(self, module: str) -> bool:
        """Whether each sample of a process's shard may draw, one more often than another: then they soon part."""
        for file, call in self._side.calls:
            dotted = file.qualified(call.func) or ""
            owner, _, name = dotted.rpartition(".")
            each = getattr(file.scope(call).frame.node, "name", "") in _EACH_SAMPLE
            if _AUGMENTS.match(dotted) or (each and owner == module and name in _DRAWS[module]):
                return True
        return False

    @cached_property
    def _certain(self) -> list[tuple[Module, ast.Call]]:
        """Calls about seeds that every run makes, as far as no test that speaks of a seed stands above them."""
        about = [(f, c) for f, c in self._side.calls if "seed" in unparse(c)]
        return [(f, c) for f, c in about if not self._is_optional(f, c, frozenset())]

    def _is_optional(self, file: Module, call: ast.Call, seen: frozenset[Function]) -> bool:
        """Whether a seed is given only if one was asked for: `if args.seed: torch.manual_seed(args.seed)`."""
        if any(isinstance(above, ast.If) and "seed" in unparse(above.test) for above in file.ancestors(call)):
            return True
        function = file.scope(call).frame.node
        if not isinstance(function, Function) or function in seen:
            return False
        sites = self._side.above(function)
        return bool(sites) and all(self._is_optional(s.file, s.call, seen | {function}) for s in sites)


def _seeds(file: Module, call: ast.Call, module: str) -> bool:
    name = unparse(call.func)
    return _SEEDING[module] in (file.qualified(call.func), name) or name.rpartition(".")[2] in _FOR_ALL


def _is_given(call: ast.Call) -> bool:
    """Whether a call is given something other than None."""
    given = [*call.args, *[keyword.value for keyword in call.keywords]]
    return any(not isinstance(value, ast.Constant) or value.value is not None for value in given)


def _is_answer(file: Module, call: ast.Call) -> bool:
    """`state, reward, done, info = env.step(action)`."""
    above = file.parents[call]
    return isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Tuple) and len(above.targets[0].elts) >= 3
