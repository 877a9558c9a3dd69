"""Seeds: which random numbers all processes draw alike, as far as that can be told.

Our runtime seeds the processes of a launch alike when it is imported, so that they draw alike unless the script seeds them
apart. Accelerate does not: there they draw alike only where the script seeds them so.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from accel_migrate.analysis.notes.elsewhere import may_run
from accel_migrate.analysis.notes.settled import may_come_about
from accel_migrate.analysis.trainings.fed import feeds_training
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.imported import brought_by, starters_of
from accel_migrate.analysis.values.made_of import made_of
from accel_migrate.analysis.values.roles import Role
from accel_migrate.flow.main_guard import under_main
from accel_migrate.flow.nodes import is_none, unparse, walk
from accel_migrate.flow.scopes import Function, Module
from accel_migrate.flow.sequence import may_follow

LIBRARIES = ("torch", "numpy", "random")
LAUNCHED = "accel launch seeds all processes alike"
SEEDS = {
    "torch.manual_seed": ("torch",), "torch.seed": ("torch",),
    "numpy.random.seed": ("numpy",), "random.seed": ("random",), "transformers.set_seed": LIBRARIES,
    "transformers.trainer_utils.set_seed": LIBRARIES,
    "lightning.seed_everything": LIBRARIES, "pytorch_lightning.seed_everything": LIBRARIES,
    "lightning.pytorch.seed_everything": LIBRARIES,
}  # fmt: skip
_DRAWS = {
    "torch": {
        "rand", "randn", "randint", "normal", "randn_like", "rand_like", "randint_like", "bernoulli", "randperm", "multinomial",
        "poisson",
    },
}  # fmt: skip
_DIFFERENT = {
    "time.time", "time.time_ns", "time.perf_counter", "time.monotonic", "datetime.datetime.now", "os.getpid", "os.urandom",
    "torch.seed", "uuid.uuid4", "random.SystemRandom", "secrets.randbits", "secrets.randbelow",
}  # fmt: skip
# Generators that take their seed from the machine where they are given none.
_OF_MACHINE = {"numpy.random.default_rng", "numpy.random.RandomState", "random.Random"}
_QUASI = re.compile(r"scipy\.stats\.qmc\.(Halton|LatinHypercube|PoissonDisk|Sobol)")
_PLAYED = {"gym", "gymnasium", "envpool", "pettingzoo"}
_ALWAYS = re.compile(r"__name__|cuda")


class Seeded(Enum):
    ALIKE = "alike"  # the same seed on every process
    APART = "apart"  # by the rank, or, where nobody else does, not at all
    UNKNOWN = "unknown"  # by something that is not visible to the analysis


@dataclass(frozen=True, eq=False)
class Seed:
    """How one library is seeded; `call` is where, if that is visible, and `sometimes` whether a condition decides on it.

    `run` is the call of a function that seeds, where that is what must be named. What the script does not seed, a launch
    does where it is `launched`.
    """

    seeded: Seeded
    module: Module | None = None
    call: ast.Call | None = None
    sometimes: bool = False
    run: tuple[Module, ast.Call] | None = None
    launched: bool = False

    @property
    def known(self) -> Seeded:
        """What holds whatever the script's options are."""
        return Seeded.UNKNOWN if self.sometimes and not self.launched else self.seeded

    @property
    def may_differ(self) -> bool:
        """Whether processes draw numbers of their own, as far as the script's options are not known."""
        return self.seeded is Seeded.APART or (self.sometimes and not self.launched)

    def told(self, module: Module) -> str:
        """By what all are seeded alike, as seen from a file."""
        if self.call is None:
            return LAUNCHED
        if self.sometimes:
            return (
                f"{self.place(module)}, {'or accel launch' if self.launched else 'where that runs with a fixed number'}"
            )
        return self.place(module)

    def unless(self, module: Module) -> str:
        """What would seed it after all, to follow "is not seeded alike"; empty where nothing does."""
        return f" unless {self.place(module)} runs with a fixed number" if self.sometimes else ""

    def number(self, module: Module, place: ast.AST) -> str:
        """How to write the number at a place of a file: as it is seeded by, where that can be read there."""
        if self.module is None or self.call is None or (self.sometimes and self.launched):
            return "torch.initial_seed() % 2**32"
        names = [n for n in self.module.walk(_number(self.call), ast.Name) if self.module.qualified(n) is None]
        scopes = [v.scope for n in names if (v := self.module.variable(n)) is not None]
        near = module.scope(place)
        same = (
            self.module is module and len(scopes) == len(names) and all(s is near or s.parent is None for s in scopes)
        )
        return unparse(_number(self.call)) if same or not names else "torch.initial_seed() % 2**32"

    def place(self, module: Module) -> str:
        assert self.module is not None
        assert self.call is not None
        return module.place_of(*(self.run or (self.module, self.call)))


class Seeding:
    """What is known of the seeds in the files that a training runs with."""

    def __init__(self, script: Script, training: Training, target: str) -> None:
        self.script = script
        self.launched = target != "accelerate"
        self.roles = script.roles
        self.graph = script.graph
        self.flow = training.flow
        self.training = training
        self.files = script.loaded(training)
        self.scripts = {
            training.place.module,
            *starters_of(script.project, training.place.module, training.place.after),
        }

    def of(self, library: str, drawn: tuple[Module, ast.Call] | None = None) -> Seed:
        """How a library is seeded: alike only if every seed of it that runs is the same on all processes.

        Conditions that decide on what is `drawn` as well do not make a seed doubtful there.
        """
        around = frozenset(drawn[0].ancestors(drawn[1])) if drawn is not None else frozenset()
        found = self._seeds(library)
        apart = next((each for each in found if self._differs(*each)), None)
        if apart is not None:
            return Seed(Seeded.APART, *apart)
        sure = [(module, call) for module, call in found if not self._is_optional(module, call, around)]
        if found:
            launched = self.launched and not any(self._may_be_of_process(*each) for each in found)
            return Seed(Seeded.ALIKE, *(sure or found)[0], sometimes=not sure, launched=launched)
        unseen = Seeded.ALIKE if self.launched else Seeded.APART
        return Seed(Seeded.UNKNOWN if self._may_be_seeded() else unseen, launched=self.launched)

    def last(self, library: str) -> Seed | None:
        """The last seed that runs after prepare and before the last step, where one does."""
        found = [
            Seed(Seeded.ALIKE, module, call, self._is_optional(module, call, frozenset()), run, self.launched)
            for module, call in self._seeds(library)
            for run in self._before_a_step(module, call)
        ]
        return found[-1] if found else None

    def _before_a_step(self, module: Module, call: ast.Call, depth: int = 0) -> list[tuple[Module, ast.Call]]:
        """A call that runs after prepare and with steps to come; itself, or those of its function that do."""
        if depth > 5 or not self.training.timing.after_prepare(module, call):
            return []
        function = module.scope(call).function
        if any(may_follow(module, call, step) for step in self._steps(module, function)):
            return [(module, call)]
        sites = self.graph.sites.get(function, ()) if function is not None else ()
        return [run for site in sites for run in self._before_a_step(*site, depth + 1)]

    def _steps(self, module: Module, function: Function | None) -> list[ast.stmt]:
        """The statements of a function that run backward passes, themselves or by what they call."""
        return [
            node
            for node in module.walk(function or module.tree)
            if isinstance(node, ast.stmt)
            and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and module.scope(node).function is function
            and self.graph.runs_any(module, node, self.training.backwards)
        ]

    def _differs(self, module: Module, call: ast.Call) -> bool:
        """Whether a seed is another one on each process: by the rank, by the clock, or drawn."""
        return _is_left_out(call) or self.flow.depends(module, _number(call)) or self._is_drawn(module, _number(call))

    def _is_optional(self, module: Module, call: ast.Call, around: frozenset[ast.AST]) -> bool:
        """`if args.seed: torch.manual_seed(args.seed)`, or a number that is drawn where none is given."""
        function = module.scope(call).function
        sites = self.graph.sites.get(function, []) if function is not None and function not in around else []
        return (
            self._is_conditional(module, call, around)
            or (bool(sites) and all(self._is_conditional(owner, site, around) for owner, site in sites))
            or self._may_be_of_process(module, call)
        )

    def _may_be_of_process(self, module: Module, call: ast.Call) -> bool:
        """Whether a seed is given a number that differs by process somewhere: `seed = seed or int(time.time())`."""
        seeds = [(module, _number(call)), *(self.graph.handed(module.variable(_number(call))))]
        values = [(owner, b.value) for owner, seed in seeds for b in owner.bindings_of(seed) if b.value is not None]
        return any(self._is_drawn(*each) for each in values)

    def _is_drawn(self, module: Module, node: ast.expr) -> bool:
        calls = module.walk(node, ast.Call)
        drawn = not self.launched and any(
            library_of(module, call) or module.qualified(call.func) == "torch.initial_seed" for call in calls
        )
        return drawn or any(module.qualified(call.func) in _DIFFERENT for call in calls)

    def _is_conditional(self, module: Module, call: ast.Call, around: frozenset[ast.AST]) -> bool:
        """Whether a condition decides on a call; the script's own guard and the presence of a GPU are not counted."""
        return any(
            isinstance(parent, ast.If | ast.IfExp)
            and parent not in around
            and not _ALWAYS.search(unparse(parent.test))
            and not all(self._is_given(module, name) for name in module.walk(parent.test, ast.Name))
            for parent in module.ancestors(call)
        )

    def _is_given(self, module: Module, name: ast.AST) -> bool:
        """Whether a name is a parameter that every call gives a number."""
        handed = self.graph.handed(module.variable(name))
        return bool(handed) and all(isinstance(value, ast.Constant) and value.value for _, value in handed)

    def drawn(self) -> dict[str, tuple[Module, ast.Call]]:
        """The libraries that are drawn from, each with the first call that does; what the models draw is no data."""
        parts = self._of_models()
        found: dict[str, tuple[Module, ast.Call]] = {}
        drawing = [(m, call, name) for m in self.files for call in m.calls if (name := library_of(m, call)) is not None]
        for module, call, library in drawing:
            owner = module.scope(call).owner_class
            part = owner is not None and owner.node in parts
            if part or not self._is_run(module, call) or not may_come_about(self.graph, module, call):
                continue
            if not self._is_only_looked_at(module, call):
                found.setdefault(library, (module, call))
        return found

    def _is_only_looked_at(self, module: Module, call: ast.Call) -> bool:
        """Whether a number is bound to a name of its function, and trained by in no way: the start of a sample to show."""
        statement, scope = module.statement(call), module.scope(call)
        if not isinstance(statement, ast.Assign) or not scope.is_function:
            return False
        bound = {node.id for target in statement.targets for node in walk(target) if isinstance(node, ast.Name)}
        asked: list[ast.AST] = [node.test for node in module.walk(scope.node, ast.If, ast.While)]
        asked += [node.iter for node in module.walk(scope.node, ast.For, ast.comprehension)]  # `for i in chosen:`
        if any(isinstance(node, ast.Name) and node.id in bound for part in asked for node in walk(part)):
            return False
        return not feeds_training(self.graph, self.training.backwards, module, statement)

    @property
    def plays(self) -> bool:
        """Whether what is trained on is played, in games with numbers of their own: by a file that trains, or for it."""
        running = [module for module in self.files if self._trains(module)] or self.files
        loaded = [*running, *brought_by(self.roles.project, running)]
        playing = [m for m in loaded if any(name.partition(".")[0] in _PLAYED for name in m.imports.values())]
        return any(
            (m.qualified(name) or "").partition(".")[0] in _PLAYED for m in playing for name in m.walk(m.tree, ast.Name)
        )

    def _trains(self, module: Module) -> bool:
        """Whether a file runs a backward pass: by itself, or by what it calls in others."""
        functions = {backward.function for backward in self.training.backwards}
        own = any(backward.module is module and backward.function is None for backward in self.training.backwards)
        return own or not functions.isdisjoint(self.graph.reached_from(module.tree, module))

    def makes_the_same(self) -> bool:
        """Whether processes that make their batches by hand all make the same."""
        seeds = [self.of(library) for library in ({"torch"} if self.plays else self.drawn())]
        return self.of_machine is None and all(seed.known is Seeded.ALIKE for seed in seeds)

    @cached_property
    def of_machine(self) -> tuple[Module, ast.Call] | None:
        """The first call that makes a generator which begins otherwise on each process, outside of the models."""
        parts = self._of_models()
        made = ((module, call) for module in self.files for call in module.calls if is_of_machine(module, call))
        ran = (
            (module, call)
            for module, call in made
            if self._is_run(module, call) and may_come_about(self.graph, module, call)
        )
        return next(((m, c) for m, c in ran if getattr(m.scope(c).owner_class, "node", None) not in parts), None)

    def _of_models(self) -> set[ast.AST]:
        models = [built.variable for built in self.training.prepared if built.role == Role.MODEL]
        return {part.node for model in models for part in made_of(self.graph, model)}

    def _seeds(self, library: str) -> list[tuple[Module, ast.Call]]:
        """The calls that seed a library."""
        seeds = [(m, call) for m in self.files for call in m.calls_of(SEEDS) if library in libraries_of(m, call)]
        return [each for each in seeds if self._is_run(*each) and may_run(self.script, self.training, *each)]

    def _is_run(self, module: Module, call: ast.Call) -> bool:
        """Whether a call runs, as far as that can be told."""
        function = module.scope(call).function
        sites = self.graph.sites.get(function, ()) if function is not None else ()
        spawned = self.training.distribution.spawned
        runs = function is None or any(self._runs(*site) for site in sites) or _is_method(module, call)
        runs = runs or (spawned is not None and spawned.function is function)
        return runs and self._runs(module, call)

    def _runs(self, module: Module, node: ast.AST) -> bool:
        """Whether a file may run a node: one that is only imported does not run its own start."""
        return module in self.scripts or (module in self.files and not under_main(module, node))

    def _may_be_seeded(self) -> bool:
        """Whether something is called for its name that is out of sight: `from toolbox import set_seed`."""
        return any(
            self.roles.target(module, call) is None
            for module in self.files
            for name, calls in module.imported_calls.items()
            if "seed" in name.rpartition(".")[2] and not name.startswith(("torch.", "numpy.", "random."))
            for call in calls
        )


def library_of(module: Module, call: ast.Call) -> str | None:
    """The library whose global generator a call draws from."""
    dotted = module.full_name(call.func)
    owner, _, name = dotted.rpartition(".")
    if any(keyword.arg == "generator" for keyword in call.keywords):
        return None
    if owner == "torch" and name in _DRAWS["torch"]:
        return "torch"
    if owner == "numpy.random" and name not in ("seed", "RandomState", "default_rng", "get_state", "set_state"):
        return "numpy"
    if dotted in ("pyDOE.lhs", "pyDOE2.lhs"):
        return "numpy"
    if dotted.startswith("torchtext.") and "Iterator" in dotted:
        return "random"
    if owner == "random" and name not in ("seed", "Random", "getstate", "setstate", "SystemRandom"):
        return "random"
    return None


def is_of_machine(module: Module, call: ast.Call) -> bool:
    """Whether a call makes a generator that begins otherwise on each process: `np.random.default_rng()`."""
    dotted = module.full_name(call.func)
    if _QUASI.fullmatch(dotted):
        return not any(keyword.arg in ("seed", "rng") for keyword in call.keywords)
    return dotted == "random.SystemRandom" or (dotted in _OF_MACHINE and _is_left_out(call) and not call.keywords)


def _is_left_out(call: ast.Call) -> bool:
    """`random.seed()`, `np.random.seed(None)`: whoever is given no number takes one from the machine."""
    number = _number(call)
    return is_none(number)


def _number(call: ast.Call) -> ast.expr:
    """What a seed is given: by place, or by whatever name."""
    given = [*call.args[:1], *[keyword.value for keyword in call.keywords if keyword.arg != "workers"]]
    return given[0] if given else ast.Constant(None)


def libraries_of(module: Module, call: ast.Call) -> tuple[str, ...]:
    """The libraries that a call seeds."""
    return SEEDS.get(module.full_name(call.func), ())


def _is_method(module: Module, call: ast.Call) -> bool:
    return module.scope(call).owner_class is not None
