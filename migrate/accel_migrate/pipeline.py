"""From sources to results: analysis, rules, decision, rewriting, verification. Reads no disk and writes none."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from accel_migrate.analysis.scopes import Module
from accel_migrate.analysis.script import read
from accel_migrate.analysis.training import Script, Training
from accel_migrate.errors import MigrateError, SourceError
from accel_migrate.limits import LARGEST_PIECE
from accel_migrate.plan import Change, FileResult, Note, Safety, Status
from accel_migrate.rule import Context
from accel_migrate.rules import RULES, loop_left
from accel_migrate.settings import DEFAULTS, Settings
from accel_migrate.source import Source
from accel_migrate.verify import BrokenResult, check

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
Accept = Callable[[Source, Change], bool]


def migrate(
    sources: Sequence[Source],
    settings: Settings = DEFAULTS,
    *,
    siblings: Mapping[Path, Source] | None = None,
    accept: Accept = lambda source, change: True,
) -> list[FileResult]:
    """Migrate the sources of one project together; `siblings` are read for what they tell and never changed.

    `accept` is asked once for each change that would be applied; a required change that is refused leaves its
    whole training loop as it was.
    """
    if len(sources) + len(siblings or {}) > LARGEST_PIECE:
        return [migrate([source], settings, accept=accept)[0] for source in sources]
    with _without_collection():
        return _migrate(sources, settings, siblings or {}, accept)


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
    sources: Sequence[Source], settings: Settings, siblings: Mapping[Path, Source], accept: Accept
) -> list[FileResult]:
    results: dict[Path, FileResult] = {}
    modules: list[Module] = []
    for source in sources:
        try:
            reason = _left_alone(source)
            if reason:
                results[source.path] = _unchanged(source, reason)
            else:
                modules.append(Module(source))
        except SourceError as error:
            results[source.path] = _failed(source, error)
        except RecursionError:
            results[source.path] = _failed(source, SourceError("is nested too deeply to analyse"))
    if any(b"backward" in module.source.data or b"scaler(" in module.source.data for module in modules):
        given = {module.source.path for module in modules}
        silent = [s for s in sources if s.path not in given and s.path.name == "__init__.py"]  # they pass names on
        around = [*silent, *siblings.values()]
        others = [m for s in around if s.path not in given and (m := _readable(s)) is not None]
        results |= _migrate_modules(modules, others, settings, accept)
    else:
        results |= {m.source.path: _unchanged(m.source, "no training loop") for m in modules}
    return [results[source.path] for source in sources]


def _left_alone(source: Source) -> str:
    """Why a file needs no look, told without a concrete syntax tree; empty if it needs one."""
    if b"torch" not in source.data:
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
        relevant = b"torch" in source.data or source.path.name == "__init__.py"
        return Module(source) if relevant and not _framework(source) else None
    except (SourceError, RecursionError):
        return None  # a neighbour that cannot be read tells nothing


def _migrate_modules(
    modules: list[Module], others: list[Module], settings: Settings, accept: Accept
) -> dict[Path, FileResult]:
    script = read([*modules, *others], settings.keep_device)
    plans = {module.source.path: _FilePlan(module) for module in modules}
    for refusal in script.refusals:
        plan = plans.get(refusal.module.source.path)
        if plan is not None:
            plan.refuse(refusal.line, refusal.reason)
    for training in script.trainings:
        missing = [m for m in training.modules if m.source.path not in plans]
        unknown = _unknown_to(settings.target, training)
        changes = list(_changes(script, training, settings)) if not missing else []
        if missing:
            _name_missing(plans, training, missing)
        elif unknown:
            plans[training.backwards[0].module.source.path].refuse(training.backwards[0].call.lineno, unknown)
        elif not _wanted(changes, plans, settings, accept):
            for module in training.modules:
                plans[module.source.path].refused += [c for m, c in changes if m is module]
            plan = plans[training.backwards[0].module.source.path]
            plan.refuse(training.backwards[0].call.lineno, "a change it cannot do without was refused")
        else:
            for module, change in changes:
                plans[module.source.path].take(change, settings, accept)
    return {path: plan.result(settings) for path, plan in plans.items()}


def _changes(script: Script, training: Training, settings: Settings) -> Iterator[tuple[Module, Change]]:
    for module in training.modules:
        context = Context(script, training, module, settings)
        for rule in RULES:
            for change in rule.find(context):
                yield module, change


def _wanted(
    changes: list[tuple[Module, Change]], plans: Mapping[Path, _FilePlan], settings: Settings, accept: Accept
) -> bool:
    """Whether every change that the loop cannot do without may be made."""
    for module, change in changes:
        if change.required and change.safety is not Safety.NOTE:
            if change.safety is Safety.REVIEW and not settings.unsafe_fixes:
                return False
            if not accept(module.source, change):
                return False
    return True


def _unknown_to(target: str, training: Training) -> str:
    """What a training needs and its target does not have; empty if nothing."""
    if target == "accelerate" and training.forward_methods:
        model, name = training.forward_methods[0]
        return (
            f"{model.text}.{name}() makes the loss, past the model's forward, so its gradients would not be averaged over "
            "processes; call it from forward(), or leave out --target: our own runtime can register it"
        )
    worker = training.distribution.worker
    if target == "accelerate" and worker is not None and worker.count is not None:
        return (
            f"{worker.function.name}() is told how many processes run on its machine, which the peer does not tell; let it "
            "read LOCAL_WORLD_SIZE, or leave out --target"
        )
    return ""


def _name_missing(plans: Mapping[Path, _FilePlan], training: Training, missing: list[Module]) -> None:
    given = [m.source.path for m in training.modules if m.source.path in plans]
    files = " ".join(str(path) for path in [*given, *[m.source.path for m in missing]])
    names = ", ".join(m.source.path.name for m in missing)
    for module in training.modules:
        plan = plans.get(module.source.path)
        if plan is not None:
            first = next((b.call.lineno for b in training.backwards if b.module is module), training.place.after.lineno)
            plan.refuse(first, f"{names} must change with it; run: accel-migrate {files}")


class _FilePlan:
    """What is decided for one file, and the result it comes to."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.applied: list[Change] = []
        self.refused: list[Change] = []
        self.notes: list[Note] = []
        self.reasons: list[str] = []

    def refuse(self, line: int, reason: str) -> None:
        self.reasons.append(reason)
        self.notes.append(Note(loop_left.CODE, line, 1, f"training loop left as it was: {reason}"))

    def take(self, change: Change, settings: Settings, accept: Accept) -> None:
        if change in self.applied or change in self.refused:
            return  # a function that several scripts train with changes once
        if change.safety is Safety.NOTE:
            self.notes.append(Note(change.code, change.line, change.column, change.message))
        elif change.required or (
            (change.safety is Safety.SAFE or settings.unsafe_fixes) and accept(self.module.source, change)
        ):
            self.applied.append(change)
        else:
            self.refused.append(change)

    def result(self, settings: Settings) -> FileResult:
        source = self.module.source
        notes = tuple(sorted(self.notes, key=lambda n: (n.line, n.column, n.code)))
        applied = tuple(sorted(self.applied, key=lambda c: (c.line, c.column, c.code)))
        if not applied:
            reason = "; ".join(dict.fromkeys(self.reasons)) or ("" if notes else "no training loop")
            return FileResult(
                source.path, Status.UNCHANGED, reason, (), tuple(self.refused), notes, source.data, source.data
            )
        from accel_migrate.apply import apply  # libcst is imported only for a file that changes

        try:
            result = check(source, apply(source, (edit for change in applied for edit in change.edits)))
            _check_stable(result, settings)
        except (MigrateError, AssertionError) as error:
            return _failed(source, error)
        return FileResult(
            source.path, Status.MIGRATED, "", applied, tuple(self.refused), notes, source.data, result.data
        )


def _check_stable(result: Source, settings: Settings) -> None:
    """A second run over the result must find nothing more to do."""
    if _left_alone(result):
        return
    script = read([Module(result)], settings.keep_device)
    for training in script.trainings:
        if any(change.edits for _, change in _changes(script, training, settings)):
            raise BrokenResult("a second run would change the file again; please report this script")


def _unchanged(source: Source, reason: str) -> FileResult:
    return FileResult(source.path, Status.UNCHANGED, reason, before=source.data, after=source.data)


def _failed(source: Source, error: Exception) -> FileResult:
    line = getattr(error, "line", None)
    reason = f"line {line}: {error}" if line else str(error)
    return FileResult(source.path, Status.FAILED, reason, before=source.data, after=source.data)
