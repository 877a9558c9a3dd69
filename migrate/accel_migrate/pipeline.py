"""From sources to results: analysis, rules, decision, rewriting, verification. Reads no disk and writes none."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from accel_migrate.analysis.evaluation.evaluation import Whole
from accel_migrate.analysis.trainings.script import read
from accel_migrate.analysis.trainings.training import Again, Script, Training
from accel_migrate.check import GATHERED_LOADER, READ_AFTER_WRITTEN, STEPS_ALIKE
from accel_migrate.errors import MigrateError, SourceError, internal_error
from accel_migrate.facts import Facts
from accel_migrate.flow.imports import used_by
from accel_migrate.flow.once import kept_meanwhile
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.version import Version
from accel_migrate.limits import LARGEST_PIECE
from accel_migrate.plan import Change, FileResult, Note, Safety, Status, Together
from accel_migrate.rewriting import LOOP_LEFT, Left, Loop, Taken, failure, rewrite
from accel_migrate.rule import Context
from accel_migrate.rules import RULES
from accel_migrate.settings import DEFAULTS, Settings
from accel_migrate.source import Source, concerns_torch
from accel_migrate.verify import BrokenResult

__all__ = ["Settings", "migrate"]

_FRAMEWORKS = {
    "accel_runtime": "accel_runtime",
    "accelerate": "Accelerate",
    "lightning": "Lightning",
    "pytorch_lightning": "Lightning",
    "lightning_fabric": "Fabric",
    "ignite": "ignite",
    "fastai": "fastai",
    "deepspeed": "DeepSpeed",
    "composer": "Composer",
    "colossalai": "Colossal-AI",
    "torch_xla": "torch_xla",
}
_MENTIONED = re.compile("|".join([*_FRAMEWORKS, "Trainer"]).encode())
Accept = Callable[[Source, Change, Together | None], bool]
Keeps = Callable[[Source, int], bool]


def migrate(
    sources: Sequence[Source],
    settings: Settings = DEFAULTS,
    *,
    siblings: Mapping[Path, Source] | None = None,
    tests: Collection[Path] = (),
    accept: Accept = lambda source, change, together: True,
    keeps: Keeps = lambda source, line: False,
) -> list[FileResult]:
    """Migrate the sources of one project together; `siblings` are read for what they tell and never changed.

    `accept` is asked once for each change that would be applied, with those that it belongs to; a required change that
    is refused leaves its whole training loop as it was. `keeps` says on which lines moves to a device stay, though they are
    needless. What `tests` among the siblings call leaves no loop: they may have to change with it.
    """
    if len(sources) + len(siblings or {}) > LARGEST_PIECE:
        return [migrate([source], settings, accept=accept, keeps=keeps)[0] for source in sources]
    with _without_collection(), kept_meanwhile():
        return _migrate(sources, settings, siblings or {}, tests, accept, keeps)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Trees are large and live until their file is done: the collector would go through them again and again."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _migrate(
    sources: Sequence[Source],
    settings: Settings,
    siblings: Mapping[Path, Source],
    tests: Collection[Path],
    accept: Accept,
    keeps: Keeps,
) -> list[FileResult]:
    results: dict[Path, FileResult] = {}
    modules: list[Module] = []
    unread: list[Source] = []  # they run, and cannot be analysed
    for source in sources:
        try:
            reason = _left_alone(source)
            if settings.facts is not None and not settings.facts.fit(source.path, source.data):
                raise SourceError("has changed since its run was observed; observe it again (--observe)")
            if reason:
                results[source.path] = _unchanged(source, reason)
            else:
                modules.append(Module(source))
        except SourceError as error:
            results[source.path] = failure(source, error)
        except RecursionError:
            results[source.path] = failure(source, SourceError("is nested too deeply to analyse"))
            unread.append(source)
    if any(_may_train(module.source.data) for module in modules):
        given = {module.source.path for module in modules}
        silent = [s for s in sources if s.path not in given]  # they pass names on, run what trains, store what it made
        calling = [m for s in silent if not concerns_torch(s.data) and (m := _readable(s)) is not None]
        given |= {module.source.path for module in calling}
        around = [*silent, *siblings.values()]
        others = [m for s in around if s.path not in given and (m := _readable(s)) is not None]
        modules, results = _kept_for(unread, [*modules, *calling], results)
        found = _migrate_modules(modules, others, settings, accept, keeps)
        if (left := _left(found)) and any(module.source.path in tests for module in others):
            beside = [module for module in others if module.source.path not in tests]
            untested = _migrate_modules(modules, beside, settings, accept, keeps)
            found = untested if _left(untested) < left else found
        idle = {module.source.path for module in calling if not _is_told_of(found.get(module.source.path))}
        results |= {path: result for path, result in found.items() if path not in idle}
    else:
        results |= {m.source.path: _unchanged(m.source, "no training loop") for m in modules}
    return [results[source.path] for source in sources]


def _left(results: Mapping[Path, FileResult]) -> set[tuple[Path, int]]:
    """The loops that stay as they were."""
    return {(path, note.line) for path, each in results.items() for note in each.notes if note.code == LOOP_LEFT}


def _is_told_of(result: FileResult | None) -> bool:
    """Whether a file is changed, or something is said about it."""
    return result is not None and (result.status is not Status.UNCHANGED or bool(result.notes))


def _may_train(data: bytes) -> bool:
    """Whether a file is worth a look: it runs a backward pass, or builds an optimizer that another file may step."""
    return b"backward" in data or b"scaler(" in data or (b"optim" in data and b"parameters(" in data)


def _kept_for(
    unread: Sequence[Source], modules: list[Module], results: dict[Path, FileResult]
) -> tuple[list[Module], dict[Path, FileResult]]:
    """Without the files that one which cannot be analysed may use: it would go on using them as they were."""
    used = used_by(unread, [module.source for module in modules])
    reason = f"{unread[0].path.name}, which may use it, could not be analysed" if unread else ""
    left = {module.source.path: _unchanged(module.source, reason) for module in modules if module.source in used}
    return [module for module in modules if module.source not in used], {**results, **left}


def _left_alone(source: Source) -> str:
    """Why a file needs no look, told without a concrete syntax tree; empty if it needs one."""
    if not concerns_torch(source.data):
        source.tree  # noqa: B018  a syntax error is told all the same
        return "does not use torch"
    used = _framework(source)
    return f"already uses {used}" if used else ""


def _framework(source: Source) -> str | None:
    """The training framework that a file imports."""
    if not _MENTIONED.search(source.data):
        source.tree  # noqa: B018  a syntax error is told all the same
        return None
    for node in _statements(source.tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
            if node.module == "transformers" and any("Trainer" in alias.name for alias in node.names):
                return "the Trainer of transformers"
        else:
            continue
        for name in names:
            if name.split(".")[0] in _FRAMEWORKS:
                return _FRAMEWORKS[name.split(".")[0]]
    return None


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements, without the expressions in them."""
    pending = [tree]
    for node in pending:
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                pending += inner
        yield node


def _readable(source: Source) -> Module | None:
    try:
        return None if _framework(source) else Module(source)
    except (SourceError, RecursionError):
        return None  # a neighbour that cannot be read tells nothing


def _script(modules: list[Module], settings: Settings, keeps: Keeps, again: Mapping[int, Again]) -> Script:
    """What the code tells; and where that leaves a loop, what a run showed beside it."""

    def understood(facts: Facts | None) -> Script:
        kept = lambda module, line: keeps(module.source, line)  # noqa: E731
        for_accelerate = settings.target == "accelerate"
        return read(modules, settings.keep_device, settings.prints_once, kept, facts, for_accelerate, again)

    script = understood(None)
    return understood(settings.facts) if settings.facts is not None and script.refusals else script


def _migrate_modules(
    modules: list[Module], others: list[Module], settings: Settings, accept: Accept, keeps: Keeps
) -> dict[Path, FileResult]:
    """The results with as few moves as can be; a loop that is left so is tried once more with all of its moves, or with
    evaluations that every process makes whole: with as few as can be."""

    def attempt(again: Mapping[int, Again]) -> _Attempt:
        script = _script([*modules, *others], settings, keeps, again)
        return _attempted(script, modules, others, settings, accept)

    try:
        lean = attempt({})
    except Exception as error:  # one file's trouble never costs another's result
        return _without_the_strange(modules, others, settings, accept, keeps, error)
    for again in _forms(lean.again):
        found = lean.better(attempt(again))
        if found is lean:
            continue
        for index, each in again.items():
            for loop in each.apart if len(each.apart) > 1 else ():
                fewer = attempt({**again, index: replace(each, apart=(loop,))})
                if fewer.left <= found.left:
                    found = fewer
                    break
        return found.results
    return lean.results


@dataclass(frozen=True, eq=False)
class _Attempt:
    results: dict[Path, FileResult]
    again: Mapping[int, Again]  # the trainings that were taken back, and may be right in another form
    left: frozenset[tuple[Path, int]]  # the loops that stay as they were

    def better(self, other: _Attempt) -> _Attempt:
        """This one, unless the other migrates a loop more and none less."""
        return other if other.left < self.left else self


def _attempted(
    script: Script, modules: list[Module], others: list[Module], settings: Settings, accept: Accept
) -> _Attempt:
    left = {module.source.path: Left() for module in modules}
    for refusal in script.refusals:
        if refusal.module.source.path in left:
            left[refusal.module.source.path].add(refusal.line, refusal.reason, error=refusal.error)
    decided = _Decided(settings, accept)
    loops: list[tuple[Training, Loop]] = []
    for training in script.trainings:
        missing = [m for m in training.modules if m.source.path not in left]
        unknown = _unknown_to(settings.target, training)
        first = training.backwards[0]
        if missing:
            _name_missing(left, training, missing)
            continue
        try:
            changes = list(_changes(script, training, settings))
        except Exception as error:  # whatever a rule does wrong, the other loops must go on
            left[first.module.source.path].add(first.call.lineno, internal_error(error), error=error)
            continue
        if unknown:
            left[first.module.source.path].add(first.call.lineno, unknown)
        elif not decided.whole(changes):
            for module, change in changes:
                left[module.source.path].refused.append(change)
            left[first.module.source.path].add(first.call.lineno, "a change it cannot do without was refused")
        else:
            loops.append((training, decided.loop(first.module.source.path, first.call.lineno, changes)))
    kept = [training for training, _ in loops]
    without = {training.index for training in script.trainings if training not in kept}
    for training, loop in loops:
        if training.index in without:
            left[loop.path].add(loop.line, "a training that shares functions with it is left")
    loops = [(training, loop) for training, loop in loops if training.index not in without]
    done = rewrite(
        modules,
        others,
        [loop for _, loop in loops],
        left,
        lambda result: _check_stable(result, settings),
        accept,
    )
    notes = [(path, note) for path, result in done.results.items() for note in result.notes]
    return _Attempt(
        done.results,
        {
            training.index: again
            for training, loop in loops
            if (why := done.taken.get(loop)) and (again := _again(training, why, settings.target)) is not None
        },
        frozenset((path, note.line) for path, note in notes if note.code == LOOP_LEFT),
    )


def _again(training: Training, why: Taken, target: str) -> Again | None:
    """How a training is tried once more: with its moves, with names that all agree on, or without an evaluation's rewrite."""
    if why.parted and training.dropped:
        return Again(staying=why.parted)
    apart = tuple(e.loop for e in training.evaluations if not isinstance(e, Whole))
    # Where processes part ways, an evaluation that none waits in may be run by some alone: only if that is said (AM806).
    known = why.code == GATHERED_LOADER.code or (why.code == STEPS_ALIKE.code and training.decisions)
    if apart and known:
        return Again(apart=apart, why=why.sharded)
    by_names = why.code in (READ_AFTER_WRITTEN.code, STEPS_ALIKE.code) and target != "accelerate"
    return Again(agrees=True) if by_names and training.own_names else None


def _forms(again: Mapping[int, Again]) -> Iterator[Mapping[int, Again]]:
    """What is tried, best first: evaluations whose loaders are not prepared are dealt out all the same, or read whole."""
    if any(each.apart for each in again.values()):
        yield {index: replace(each, in_place=True) for index, each in again.items()}
    if again:
        yield again


def _without_the_strange(
    modules: list[Module], others: list[Module], settings: Settings, accept: Accept, keeps: Keeps, error: Exception
) -> dict[Path, FileResult]:
    """The results without the files that fail when they are read alone, and without what those may use."""
    strange = [module for module in (*modules, *others) if _fails_alone(module, settings)]
    if not strange:
        raise error
    results = {module.source.path: failure(module.source, _fault(error)) for module in modules if module in strange}
    rest = [module for module in modules if module not in strange]
    rest, results = _kept_for([module.source for module in strange], rest, results)
    others = [other for other in others if other not in strange]
    return results | _migrate_modules(rest, others, settings, accept, keeps)


def _fails_alone(module: Module, settings: Settings) -> bool:
    try:
        read([module], settings.keep_device, settings.prints_once)
    except Exception:  # which one does not matter: the whole failed
        return True
    return False


def _fault(error: Exception) -> MigrateError:
    return MigrateError(internal_error(error))


def _changes(script: Script, training: Training, settings: Settings) -> Iterator[tuple[Module, Change]]:
    for module in training.modules:
        context = Context(script, training, module, settings)
        for rule in RULES:
            for change in rule.find(context):
                yield module, _marked(change, training)


def _marked(change: Change, training: Training) -> Change:
    """A change that rests on what a run showed says so."""
    if not training.observed or not change.edits:
        return change
    times = min(each.times for each in training.observed)
    return replace(change, message=f"{change.message}; observed ({times} times)")


class _Decided:
    """What is done with each change: asked once, however many loops want it."""

    def __init__(self, settings: Settings, accept: Accept) -> None:
        self.settings = settings
        self.accept = accept
        self._known: dict[tuple[Path, Change], bool] = {}

    def whole(self, changes: list[tuple[Module, Change]]) -> bool:
        """Whether every change that a loop cannot do without may be made."""
        made = [(module, change) for module, change in changes if change.safety is not Safety.NOTE]
        required = [(module, change) for module, change in made if change.required]
        if not self.settings.unsafe_fixes and any(change.safety is Safety.REVIEW for _, change in required):
            return False
        together = Together(tuple((module.source.path, change) for module, change in required), len(made))
        return all(self.accept(module.source, change, together) for module, change in required)

    def loop(self, path: Path, line: int, changes: list[tuple[Module, Change]]) -> Loop:
        """The changes of a loop that may be made, sorted by file and by what becomes of them."""
        applied: dict[Path, list[Change]] = {}
        refused: dict[Path, list[Change]] = {}
        notes: dict[Path, list[Note]] = {}
        count = sum(change.safety is not Safety.NOTE for _, change in changes)
        for module, change in changes:
            where = module.source.path
            if change.safety is Safety.NOTE:
                notes.setdefault(where, []).append(Note(change.code, change.line, change.column, change.message))
            elif self._is_made(module, change, count):
                applied.setdefault(where, []).append(change)
            else:
                refused.setdefault(where, []).append(change)
        return Loop(path, line, applied, refused, notes)

    def _is_made(self, module: Module, change: Change, count: int) -> bool:
        key = (module.source.path, change)
        if key not in self._known:
            allowed = change.safety is Safety.SAFE or self.settings.unsafe_fixes
            self._known[key] = change.required or (
                allowed and self.accept(module.source, change, Together(((module.source.path, change),), count))
            )
        return self._known[key]


def _unknown_to(target: str, training: Training) -> str:
    """What a training needs and its target does not have; empty if nothing."""
    if target == "accelerate" and training.forward_methods:
        model, name = training.forward_methods[0]
        return (
            f"{model.text}.{name}() makes the loss, past the model's forward, so its gradients would not be averaged over "
            "processes; call it from forward(), or leave out --target: our own runtime can register it"
        )
    if target == "accelerate" and training.distribution.epochs:
        module, call = training.distribution.epochs[0]
        return (
            f"`{module.source.code(call.func)}()` passes the epoch to a sampler that is not visible to the analysis and stays: "
            "if it shards the data, Accelerate would shard its shard once more; create it beside its loader, or leave out "
            "--target"
        )
    if target == "accelerate" and (function := _counts_on_its_machine(training)):
        return (
            f"{function.name}() gets the number of processes on its machine, which Accelerate does not report; let it "
            "read LOCAL_WORLD_SIZE, or leave out --target"
        )
    return ""


def _counts_on_its_machine(training: Training) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function of a spawned process that asks how many there are on its machine."""
    worker, spawned = training.distribution.worker, training.distribution.spawned
    if worker is not None and worker.count is not None:
        return worker.function
    told = [text for text in training.rebound if "local_num_processes" in text]
    return spawned.function if spawned is not None and told else None


def _name_missing(left: Mapping[Path, Left], training: Training, missing: list[Module]) -> None:
    given = [m.source.path for m in training.modules if m.source.path in left]
    files = " ".join(str(path) for path in [*given, *[m.source.path for m in missing]])
    names = ", ".join(m.source.path.name for m in missing)
    for module in training.modules:
        said = left.get(module.source.path)
        if said is not None:
            first = next((b.call.lineno for b in training.backwards if b.module is module), training.place.after.lineno)
            said.add(first, f"{names} must change with it; run: accel-migrate {files}")


def _check_stable(result: Version, settings: Settings) -> None:
    """A second run over the result must find nothing more to do."""
    if _left_alone(result.source):
        return
    script = read(
        [result.module],
        settings.keep_device,
        settings.prints_once,
        for_accelerate=settings.target == "accelerate",
    )
    for training in script.trainings:
        if any(change.edits for _, change in _changes(script, training, settings)):
            raise BrokenResult("a second run would change the file again; please report this script")


def _unchanged(source: Source, reason: str) -> FileResult:
    return FileResult(source.path, Status.UNCHANGED, reason, before=source.data, after=source.data)
