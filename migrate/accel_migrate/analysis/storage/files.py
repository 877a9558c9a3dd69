"""Files that a training writes or reads back: weights, whole models, and all else that only one process may write."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.distribution.rank_flow import RankFlow
from accel_migrate.analysis.processes.timing import Timing
from accel_migrate.analysis.values.constructions import options_of
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.made_of import without_wrapper
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.analysis.values.sources import contents
from accel_migrate.flow.closure import closure
from accel_migrate.flow.file_calls import (
    CHANGING_PATHS,
    COMMANDS,
    OPENERS,
    WRITERS,
    WRITING_METHODS,
    Argument,
    is_writing_mode,
    opens_to_write,
    written_paths,
)
from accel_migrate.flow.nodes import (
    all_arguments,
    called_name,
    calls_method,
    is_call_of,
    is_falsy,
    keyword_value,
    unparse,
    walk,
)
from accel_migrate.flow.once import once
from accel_migrate.flow.program import default_of
from accel_migrate.flow.scopes import Function, Module

_ASKS = re.compile(r"(git (rev-parse|log|describe|status|diff)|nvidia-smi|hostname|uname|whoami|stty size|tput cols)")
_FETCHES = {
    "requests.get", "urllib.request.urlretrieve", "urllib.request.urlopen", "wget.download", "gdown.download", "nltk.download",
    "shutil.unpack_archive", "torch.hub.download_url_to_file",
}  # fmt: skip
_REQUESTS = {"requests.get", "urllib.request.urlopen"}
_WHETHER = {"status_code", "ok", "reason", "raise_for_status", "close", "status", "code", "getcode"}
_FETCHING = {
    "download_url", "download_and_extract_archive", "extract_archive", "snapshot_download", "hf_hub_download", "maybe_download",
    "download_file_from_google_drive", "cached_download",
}  # fmt: skip
_LOG_FILES = {
    "logging.FileHandler", "logging.handlers.RotatingFileHandler", "logging.handlers.TimedRotatingFileHandler",
    "logging.handlers.WatchedFileHandler",
}  # fmt: skip
_TRACKERS = {"mlflow", "neptune", "comet_ml", "clearml", "visdom", "aim", "swanlab", "dvclive", "tensorboard_logger"}
# Classes and functions of libraries that fetch their data when they are called, with no word about it.
_FETCHED_BY = re.compile(
    r"(torch_geometric\.datasets|torchtext\.(legacy\.)?datasets|dgl\.data)\.(\w+\.)*[A-Z]\w*(\.splits|\.iters)?|torchtext\.(legacy\.)?vocab\.(GloVe|FastText|CharNGram)"
    r"|ogb\.(\w+\.)+\w*Dataset\w*|gensim\.downloader\.load|sklearn\.datasets\.fetch_\w+"
)
_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp")
_STREAMS = {"io.BytesIO", "io.StringIO", "tempfile.TemporaryFile", "tempfile.SpooledTemporaryFile"}
_TEMPORARY = {"tempfile.TemporaryDirectory", "tempfile.mkdtemp"}
_KEPT_BY_SAVE = ("tokenizers.", "gensim.", "sentencepiece.", "faiss.", "torch.jit.")


@dataclass(frozen=True, eq=False)
class Save:
    """A `torch.save` that runs after prepare; `opened` is the `with open(...)` whose file it writes to."""

    module: Module
    call: ast.Call
    value: ast.expr | None
    opened: ast.With | None
    plain: bool  # two arguments, the second a path

    @property
    def statement(self) -> ast.stmt:
        """What comes under a guard, where the call cannot be the Accelerator's own."""
        return self.opened or self.module.statement(self.call)


@dataclass(frozen=True, eq=False)
class Written:
    """A statement that writes files, and that the main process alone may run."""

    module: Module
    statement: ast.stmt
    kept: bool = False  # what the call gives back is used later, so that others cannot go without it


def saves_in(graph: CallGraph, flow: RankFlow, timing: Timing, module: Module) -> Iterator[Save]:
    for call in module.calls_of(("torch.save",)):
        if not timing.meets(module, call) or is_named_by_rank(graph, flow, module, call):
            continue
        value, target = Argument(0, "obj").of(call), Argument(1, "f").of(call)
        opened = _opened_by(module, target)
        if target is None or (opened is None and is_stream(graph, module, target)):
            continue
        is_path = opened is None and not _is_file(graph, module, target)
        yield Save(module, call, value, opened, is_path and len(call.args) + len(call.keywords) == 2)


def written_in(graph: CallGraph, flow: RankFlow, module: Module) -> Iterator[Written]:
    """Statements that do nothing but write files that are the same for all; what is kept in memory is not a file."""
    seen: set[ast.stmt] = set()
    for call in module.calls:
        if not (writes(module, call) or saves(graph, module, call)) or writes_memory(graph, module, call):
            continue
        if is_named_by_rank(graph, flow, module, call):
            continue
        written = _whole(module, call)
        if written is not None and written.statement not in seen:
            seen.add(written.statement)
            yield written


def is_named_by_rank(graph: CallGraph, flow: RankFlow, module: Module, call: ast.Call) -> bool:
    """`np.save(f"losses_{rank}.npy", losses)`: each process writes a file of its own."""
    paths = written_paths(call, module.qualified(call.func)) or []
    return bool(paths) and all(_has_rank(graph, flow, module, path) for path in paths)


def _has_rank(graph: CallGraph, flow: RankFlow, module: Module, path: ast.expr, depth: int = 4) -> bool:
    """Whether a path is made of the rank, by itself or through what it is named after."""
    for part in module.walk(path, ast.Name, ast.Attribute, ast.Call):
        if flow.depends(module, part) and not flow.depends(module, part, by_choice=True):
            return True
        held = [each for each in contents(graph, module, part) if each[1] is not part]
        held += [(module, b.value) for b in module.bindings_of(part) if b.kind == "with" and b.value is not None]
        if depth and any(_has_rank(graph, flow, *each, depth - 1) for each in held):
            return True
    return False


def runs_command(module: Module, call: ast.Call) -> bool:
    """Whether a call starts another program, other than one that only answers a question."""
    if module.qualified(call.func) not in COMMANDS:
        return False
    words = [str(n.value) for part in call.args[:1] for n in walk(part) if isinstance(n, ast.Constant)]
    return _ASKS.match(" ".join(words)) is None


def opens_log(module: Module, call: ast.Call) -> bool:
    """Whether a call opens a file that log lines go to."""
    dotted = module.qualified(call.func)
    if dotted == "logging.basicConfig":
        return any(keyword.arg == "filename" for keyword in call.keywords)
    if dotted == "loguru.logger.add":
        return bool(call.args) and not module.full_name(call.args[0]).startswith("sys.")
    return dotted in _LOG_FILES


@once
def opens_events(roles: Roles, module: Module, call: ast.Call) -> bool:
    """Whether a call makes a SummaryWriter, of whatever package, or of a class that is derived from it."""
    names = [module.full_name(call.func)]
    made = roles.made(module, call) if not names[0].endswith("SummaryWriter") else None
    if made is not None:
        names = [made.module.full_name(base) for base in made.node.bases]
    return any(name.rpartition(".")[2] == "SummaryWriter" for name in names)


def tracker(module: Module, call: ast.Call) -> str | None:
    """The library that a call logs to, other than by an event file or a run of wandb, which can be told to do nothing."""
    library = module.full_name(call.func).partition(".")[0]
    return library if library in _TRACKERS else None


def makes_folder(module: Module, call: ast.Call) -> bool:
    """Whether a call makes a folder, and fails where another process has made it."""
    dotted = module.qualified(call.func)
    is_path = dotted is None and calls_method(call, "mkdir")
    if not is_path and dotted not in ("os.makedirs", "os.mkdir"):
        return False
    tried = any(isinstance(parent, ast.Try) for parent in module.ancestors(call))
    return not tried and not any(keyword.arg in ("exist_ok", None) for keyword in call.keywords)


@once
def downloads_in(module: Module) -> list[ast.Call]:
    """The calls of a file that fetch files, or unpack what was fetched."""
    return [call for call in module.calls if _downloads(module, call)]


def downloads(module: Module, call: ast.Call) -> bool:
    return call in downloads_in(module)


def _downloads(module: Module, call: ast.Call) -> bool:
    if any(_may_be_true(module, value) for value in options_of(module, call).get("download", ())):
        return True
    dotted = module.full_name(call.func)
    if calls_method(call, "extractall", "urlretrieve") and not dotted:
        return True  # an archive that was opened
    if calls_method(call, "build_vocab"):
        vectors = keyword_value(call, "vectors")
        # of torchtext, which fetches by name
        return isinstance(vectors, ast.Constant) and isinstance(vectors.value, str)
    if asks_only(module, call):
        return False
    return dotted in _FETCHES or dotted.rpartition(".")[2] in _FETCHING or bool(_FETCHED_BY.fullmatch(dotted))


def asks_only(module: Module, call: ast.Call) -> bool:
    """`requests.get(url)` of whose answer nobody takes more than whether it came: a message, and no download."""
    if module.qualified(call.func) not in _REQUESTS:
        return False
    statement = module.parents[call]
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Name):
        return _is_left(module, call)
    variable = module.variable(target)
    return all(_is_left(module, name) for name in module.reads(variable))


def _is_left(module: Module, answer: ast.expr) -> bool:
    above = module.parents[answer]
    return isinstance(above, ast.Expr) or (isinstance(above, ast.Attribute) and above.attr in _WHETHER)


def _may_be_true(module: Module, node: ast.expr) -> bool:
    """Whether it is True, or a name that is given True somewhere: by a parameter's default, unless a call says otherwise."""
    values, variable = module.held(node), module.variable(node)
    if variable is not None and isinstance(variable.scope.node, Function) and isinstance(node, ast.Name):
        said = [keyword.value for call in module.calls for keyword in call.keywords if keyword.arg == node.id]
        values += [] if any(is_falsy(v) for v in said) else [default_of(variable.scope.node, node.id)]
    return any(isinstance(value, ast.Constant) and value.value is True for value in values)


@once
def is_forward(roles: Roles, module: Module, call: ast.Call) -> bool:
    """Whether a call runs a model, itself or in a function that it calls: on several processes all must do that together."""

    def calls(each: tuple[Module, ast.Call]) -> list[tuple[Module, ast.Call]]:
        run = roles.function(*each)
        return [(run.module, inner) for inner in run.module.walk(run.node, ast.Call)] if run is not None else []

    return any(roles.role(owner, each.func) & Role.MODEL for owner, each in closure([(module, call)], calls))


def runs_model(roles: Roles, module: Module, call: ast.Call) -> bool:
    """Whether a call runs a model, or a method of the author's own of it."""
    if is_forward(roles, module, call):
        return True
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if owner is None or not roles.role(module, owner) & Role.MODEL:
        return False
    bare = roles.forward_of(module, without_wrapper(owner), call.func.attr)  # type: ignore[attr-defined]
    return bare is not None or roles.target(module, call) is not None


def writes(module: Module, call: ast.Call) -> bool:
    """Whether a call makes, changes or takes away a file."""
    dotted = module.qualified(call.func)
    if dotted is not None:
        is_writer = dotted in WRITERS and dotted != "torch.save"  # of which another rule speaks
        opens = dotted in OPENERS and _writes_by(module, Argument(1, "mode").of(call))
        return is_writer or opens or opens_to_write(call, dotted)
    if isinstance(call.func, ast.Attribute):
        if call.func.attr.startswith("to_") and not _has_path(call):
            return False  # `frame.to_json()` gives the text back
        if call.func.attr == "open":
            return _writes_by(module, Argument(0, "mode").of(call))  # `path.open("w")`
        changes = call.func.attr in WRITING_METHODS or call.func.attr in CHANGING_PATHS
        return changes or (call.func.attr == "save" and _is_picture(module, call))
    if not is_call_of(call, "open") or module.resolve("open", module.scope(call)):
        return False
    return _writes_by(module, Argument(1, "mode").of(call))


def saves(graph: CallGraph, module: Module, call: ast.Call) -> bool:
    """`torch.save(...)`, or what an object of a library writes of itself: `tokenizer.save(path)`, `picture_of(x).save(path)`."""
    if module.qualified(call.func) == "torch.save":
        return True
    return calls_method(call, "save", "save_model", "_save_for_lite_interpreter") and _is_of_library(
        graph, module, call.func.value
    )


def _is_of_library(graph: CallGraph, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether an object is made by a library, maybe by methods of another, or by a function that returns it."""
    for owner, part in contents(graph, module, node):
        while isinstance(part, ast.Call):
            if owner.full_name(part.func).startswith(_KEPT_BY_SAVE) or _makes_picture(owner, part):
                return True
            target = graph.roles.target(owner, part) if depth < 3 else None
            if target is not None and any(
                _is_of_library(graph, target.module, value, depth + 1) for value in target.returned
            ):
                return True
            # `Image.open(path).convert("L")`
            part = part.func.value if isinstance(part.func, ast.Attribute) else part.func
    return False


def _has_path(call: ast.Call) -> bool:
    return bool(call.args) or any(keyword.arg is None or keyword.arg.startswith("path") for keyword in call.keywords)


def _is_picture(module: Module, call: ast.Call) -> bool:
    """`picture.save(path)`: the object is made as a picture, or the path has the ending of one."""
    assert isinstance(call.func, ast.Attribute)
    if call.args and any(
        isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.lower().endswith(_PICTURES)
        for part in walk(call.args[0])
    ):
        return True
    held = module.held(call.func.value)
    return any(isinstance(value, ast.Call) and _makes_picture(module, value) for value in held)


def _makes_picture(module: Module, call: ast.Call) -> bool:
    dotted = module.full_name(call.func)
    return dotted.startswith("PIL.Image.") or dotted.endswith(".to_pil_image")


def _whole(module: Module, call: ast.Call) -> Written | None:
    """What a writing call makes up: its statement, or the `with open(...)` around what it writes."""
    parent = module.parents[call]
    statement = module.statement(call)
    if isinstance(parent, ast.withitem):
        return Written(module, statement) if isinstance(statement, ast.With) else None
    for around in module.ancestors(statement):
        if isinstance(around, ast.With) and any(_writes_item(module, item, call) for item in around.items):
            return None  # the block around it is the whole
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            break
    # `json.dump(log, open(path, "w"))` and `open(path, "w").write(text)` leave nothing behind
    return Written(module, statement, kept=not isinstance(statement, ast.Expr))


def _writes_item(module: Module, item: ast.withitem, call: ast.Call) -> bool:
    """Whether a block opens the file that a call in it writes to."""
    if not isinstance(item.context_expr, ast.Call) or not writes(module, item.context_expr):
        return False
    names = (
        {node.id for node in walk(item.optional_vars) if isinstance(node, ast.Name)} if item.optional_vars else set()
    )
    return any(isinstance(node, ast.Name) and node.id in names for node in walk(call))


def _writes_by(module: Module, mode: ast.expr | None) -> bool:
    """Whether a mode writes: as it is written, or under a name."""
    variable = module.variable(mode) if isinstance(mode, ast.Name) else None
    modes = [binding.value for binding in module.bindings(variable)] if variable is not None else [mode]
    return bool(modes) and all(is_writing_mode(each) for each in modes)


def _opened_by(module: Module, target: ast.expr | None) -> ast.With | None:
    """The `with open(...) as f:` that made a file object."""
    for binding in module.bindings_of(target) if isinstance(target, ast.Name) else []:
        if binding.kind == "with" and isinstance(binding.statement, ast.With):
            if any(parent is binding.statement for parent in module.ancestors(target)):  # type: ignore[arg-type]
                return binding.statement
    return None


def _is_file(graph: CallGraph, module: Module, target: ast.expr) -> bool:
    """`open(path, "wb")`, `path.open("wb")`, or a name for it."""
    return any(
        isinstance(part, ast.Call) and called_name(part) == "open" for _, part in contents(graph, module, target)
    )


def writes_memory(graph: CallGraph, module: Module, call: ast.Call) -> bool:
    """Whether what a call writes to is no file, but memory of this process."""
    return any(is_stream(graph, module, each) for each in all_arguments(call))


def is_stream(graph: CallGraph, module: Module, target: ast.expr) -> bool:
    """`io.BytesIO()`, or a file in a temporary folder: what only this process has, and every process may write."""
    found = list(contents(graph, module, target))
    made = [owner.qualified(part.func) or unparse(part.func) for owner, part in found if isinstance(part, ast.Call)]
    return any(name in _STREAMS for name in made) or is_temporary(graph, module, target)


def is_temporary(graph: CallGraph, module: Module, path: ast.expr, depth: int = 5) -> bool:
    """`os.path.join(folder, "best.pt")` in `with TemporaryDirectory() as folder:`, which each process makes for itself."""
    if (folder := _folder_of(module, path)) is not None:
        return depth > 0 and is_temporary(graph, module, folder, depth - 1)
    if isinstance(path, ast.Call):
        return module.qualified(path.func) in _TEMPORARY
    entered = [(module, b.value) for b in module.bindings_of(path) if b.kind == "with" and b.value is not None]
    found = entered or [(owner, part) for owner, part in contents(graph, module, path) if part is not path]
    return depth > 0 and bool(found) and all(is_temporary(graph, *each, depth - 1) for each in found)


def _folder_of(module: Module, path: ast.expr) -> ast.expr | None:
    """What a path begins with."""
    match path:
        case ast.JoinedStr(values=[ast.FormattedValue(value=folder), *_]) | ast.BinOp(left=folder):
            return folder
        case ast.Call(args=[folder, *_]) if module.qualified(path.func) in ("os.path.join", "pathlib.Path"):
            return folder
    return None
