"""Which calls of a program may write the file that they get a path of, and which may look at it.

A call that leaves the project may do anything with a path, unless it is known here to do nothing with the file.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from accel_migrate.check.collective_under_rank import Guards
from accel_migrate.check.evidence import Side, is_accelerator
from accel_migrate.check.paths import Paths, is_path
from accel_migrate.check.stores import Stores
from accel_migrate.flow.file_calls import (
    ASKING,
    CHANGING_PATHS,
    COMMANDS,
    OPENERS,
    READING_PATHS,
    WRITERS,
    WRITING_METHODS,
    is_writing_mode,
    written_paths,
)
from accel_migrate.flow.nodes import called_name, walk
from accel_migrate.flow.scopes import Module

_RUN_OR_KEEP = frozenset({"open", "exec", "eval", "compile", "__import__", "map", "filter", "dict"})
_LOOKING = frozenset({"os.path.getsize", "os.path.getmtime", "os.path.getctime", "os.path.samefile"})
_TEXTS = (
    "os.path.", "pathlib.", "re.", "logging.", "argparse.", "warnings.", "math.", "time.", "datetime.", "collections.", "tqdm.",
    "json.dumps", "copy.", "sys.", "itertools.", "random.", "torch.manual_seed", "gym.make", "gymnasium.make",
    "pytz.", "zoneinfo.", "wandb.init", "accel_runtime.",
)  # fmt: skip
_OF_SYSTEM = frozenset(
    {"os.makedirs", "os.mkdir", "os.chdir", "os.fspath", "os.getenv", "os.environ.get", "os.cpu_count"}
)
# Methods of whatever object that show what they get, or keep it under a name: no file is behind it.
_SHOWING = frozenset({
    "info", "debug", "warning", "warn", "error", "critical", "exception", "log", "print", "set_description", "set_postfix",
    "set_postfix_str", "title", "suptitle", "set_title", "add_argument", "set_defaults", "parse_args",
    "add_scalar", "add_scalars", "add_image", "add_images", "add_figure", "add_histogram", "add_text", "add_graph", "add_video",
    "add_audio", "add_embedding", "add_hparams", "add_pr_curve", "add_subplot", "add_module", "mkdir", "makedirs", "mkdir_p",
    "SummaryWriter", "FileHandler", "RotatingFileHandler", "basicConfig", "CSVLogger", "seed", "manual_seed", "manual_seed_all",
})  # fmt: skip
# Methods of texts, of paths without their file, and of what holds either; other objects may have such names too.
_OF_PLAIN = frozenset({
    "append", "extend", "insert", "add", "update", "setdefault", "get", "pop", "startswith", "endswith", "replace", "split",
    "rsplit", "strip", "rstrip", "lower", "upper", "format", "join", "joinpath", "index", "count", "remove", "write",
    "with_name", "with_stem", "with_suffix", "relative_to", "as_posix", "resolve", "absolute", "expanduser", "keys",
    "items", "writelines",
})  # fmt: skip
_PLAIN = (
    "collections.",
    "pathlib.",
    "argparse.",
    "logging.",
    "io.",
    "sys.",
    "os.path.",
    "tqdm.",
    "csv.",
    "codecs.",
    "gzip.",
)
KEEPING = frozenset({"Namespace", "SimpleNamespace", "EasyDict", "AttrDict", "edict", "dict", "partial"})  # for later


class PathUses:
    """Asked for a call, the paths whose file it may write, and those whose file it may look at."""

    def __init__(self, side: Side, guards: Guards, paths: Paths) -> None:
        self._side, self._guards, self._paths = side, guards, paths
        self._stores = side.once(Stores)

    def leaves(self, call: ast.Call) -> bool:
        """Whether a call leaves the project: what it does stands in no file that is read here."""
        asked = isinstance(call.func, ast.Attribute) and is_accelerator(call.func.value)
        return not asked and not self._side.flows.callees.get(call)

    def written(self, file: Module, call: ast.Call) -> Iterator[ast.expr]:
        """What a call may write to that one process alone makes."""
        known = written_paths(call, file.qualified(call.func))
        if known is not None:
            yield from known
        elif not self._does_nothing(file, call):
            yield from (each for each in _given(call) if is_path(self._paths.of(file, each)))

    def looked_at(self, file: Module, call: ast.Call) -> Iterator[ast.expr]:
        """What a call may look at that all processes make."""
        dotted = file.qualified(call.func) or ""
        if self._asks(file, call):
            if not self._decides_nothing(file, call):
                yield from _given(call)[:1] if dotted else _owner(call)
        elif _is_of_path(file, call, READING_PATHS):
            writes = called_name(call) == "open" and is_writing_mode(_given(call)[0] if _given(call) else None)
            yield from () if writes else [*_owner(call), *_given(call)]
        elif called_name(call) == "open" or dotted in OPENERS:
            modes = [each for each in _given(call)[1:] if isinstance(each, ast.Constant)]
            if not any(isinstance(m.value, str) and m.value[:1] in ("w", "a", "x") for m in modes):
                yield from _given(call)
        elif not self._does_nothing(file, call) and not _creates(file, call):
            yield from _given(call)

    def _asks(self, file: Module, call: ast.Call) -> bool:
        dotted = file.qualified(call.func)
        if dotted is not None:
            return dotted.startswith("os.") and dotted.rpartition(".")[2] in ASKING
        return isinstance(call.func, ast.Attribute) and call.func.attr in ASKING and not call.args

    def _decides_nothing(self, file: Module, call: ast.Call) -> bool:
        """Whether the answer is only shown, or decides what one process does, or that a folder is made."""
        at: ast.AST = call
        while not isinstance(at, ast.stmt):
            at = file.parents[at]
            if isinstance(at, ast.Call) and at is not call and self._does_nothing(file, at):
                return True
        if isinstance(at, ast.If) and call in walk(at.test):
            return all(self._is_quiet(file, each) for each in (*at.body, *at.orelse))
        return False

    def _is_quiet(self, file: Module, statement: ast.stmt) -> bool:
        match statement:
            case ast.Expr(value=ast.Call() as call):
                return self._guards.of(file, call) is not None or self._does_nothing(file, call)
            case ast.If(body=body, orelse=rest):
                return all(self._is_quiet(file, each) for each in (*body, *rest))
            case ast.Try(body=body, handlers=handlers, orelse=rest, finalbody=last):
                caught = [each for handler in handlers for each in handler.body]
                return all(self._is_quiet(file, each) for each in (*body, *caught, *rest, *last))
            case ast.Pass() | ast.Raise():
                return True
        return self._guards.of(file, statement) is not None

    def _does_nothing(self, file: Module, call: ast.Call) -> bool:
        """Whether a call does nothing with the file behind a path that it gets."""
        name, dotted, function = called_name(call), file.qualified(call.func), call.func
        if dotted is not None:
            harmless = dotted in _OF_SYSTEM or (dotted.startswith(_TEXTS) and dotted not in _LOOKING)
            return harmless or name in _SHOWING
        if isinstance(function, ast.Name):
            built_in = hasattr(builtins, name) and file.binder(name, file.scope(call)) is None
            return (built_in and name not in _RUN_OR_KEEP) or name in _SHOWING or name in ("tqdm", "trange", "Path")
        return name in _SHOWING or (name in _OF_PLAIN and self._is_plain(file, function.value))  # type: ignore[attr-defined]

    def _is_plain(self, file: Module, owner: ast.expr) -> bool:
        """Whether an object is no library's, as far as it can be seen where it is made."""
        values: list[tuple[Module, ast.expr]] = [(file, owner)]
        if isinstance(owner, ast.Name):
            values = [(s.file, s.value) for s in self._stores.reaching(file, owner) if s.value and not s.anywhere]
        return not any(self._is_foreign(where, value) for where, value in values)

    def _is_foreign(self, file: Module, value: ast.expr) -> bool:
        if not isinstance(value, ast.Call):
            return False
        dotted = file.qualified(value.func)
        return dotted is not None and not dotted.startswith(_PLAIN) and not self._side.flows.callees.get(value)


def is_command(file: Module, call: ast.Call) -> bool:
    return file.qualified(call.func) in COMMANDS or called_name(call) == "system"


def _given(call: ast.Call) -> list[ast.expr]:
    """What a call gets, each item of what is written as a list by itself."""
    found = [*call.args, *[keyword.value for keyword in call.keywords]]
    for each in found:
        match each:
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
                found += parts
            case ast.Starred(value=part):
                found.append(part)
    return found


def _owner(call: ast.Call) -> list[ast.expr]:
    return [call.func.value] if isinstance(call.func, ast.Attribute) else []


def _is_of_path(file: Module, call: ast.Call, methods: frozenset[str]) -> bool:
    """Whether one of these methods is called on what may be a path; `replace` of two texts is that of a text."""
    if not isinstance(call.func, ast.Attribute) or file.qualified(call.func) is not None:
        return False
    return call.func.attr in methods and not (call.func.attr == "replace" and len(call.args) > 1)


def _creates(file: Module, call: ast.Call) -> bool:
    """Whether a call only makes a file anew: that all do so is another question."""
    dotted = file.qualified(call.func)
    if dotted is not None:
        return dotted in WRITERS and not dotted.startswith(("os.", "shutil."))
    return called_name(call) in WRITING_METHODS or called_name(call) in CHANGING_PATHS
