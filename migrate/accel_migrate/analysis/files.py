"""Files that a training writes or reads back: weights, whole models, and all else that only one process may write."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.contents import contents
from accel_migrate.analysis.loops import CallGraph
from accel_migrate.analysis.roles import Role, Roles
from accel_migrate.analysis.scopes import Module
from accel_migrate.analysis.timing import Timing

_WRITERS = {
    "numpy.save", "numpy.savez", "numpy.savez_compressed", "numpy.savetxt", "torchvision.utils.save_image",
    "matplotlib.pyplot.savefig", "imageio.imwrite", "imageio.imsave", "imageio.mimsave", "imageio.mimwrite",
    "cv2.imwrite", "scipy.io.savemat", "soundfile.write", "torchaudio.save", "torchvision.utils.write_png",
    "shutil.copy", "shutil.copyfile", "shutil.copy2", "shutil.copytree", "shutil.move", "shutil.rmtree",
    "os.remove", "os.rename", "os.replace", "os.symlink", "os.unlink", "joblib.dump", "safetensors.torch.save_file",
    "torchvision.io.write_png", "torchvision.io.write_jpeg", "torch.jit.save", "torch.onnx.export",
}  # fmt: skip
_WRITING_METHODS = {"savefig", "to_csv", "to_json", "to_pickle", "to_excel", "to_parquet", "save_pretrained"}
_FETCHES = {
    "requests.get", "urllib.request.urlretrieve", "urllib.request.urlopen", "wget.download", "gdown.download", "nltk.download",
    "shutil.unpack_archive", "torch.hub.download_url_to_file",
}  # fmt: skip
_FETCHING = {
    "download_url", "download_and_extract_archive", "extract_archive", "snapshot_download", "hf_hub_download", "maybe_download",
    "download_file_from_google_drive", "cached_download",
}  # fmt: skip
_STREAMS = {"io.BytesIO", "io.StringIO", "tempfile.TemporaryFile", "tempfile.SpooledTemporaryFile"}
_WRITING_MODE = re.compile(r"[wax]")


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
    what: str


def saves_in(graph: CallGraph, timing: Timing, module: Module) -> Iterator[Save]:
    for call in module.calls:
        if module.qualified(call.func) != "torch.save" or not timing.after_prepare(module, call):
            continue
        value, target = _argument(call, 0, "obj"), _argument(call, 1, "f")
        opened = _opened_by(module, target)
        if target is None or (opened is None and is_stream(graph, module, target)):
            continue
        yield Save(module, call, value, opened, opened is None and len(call.args) + len(call.keywords) == 2)


def written_in(graph: CallGraph, module: Module) -> Iterator[Written]:
    """Statements that do nothing but write files; memory of this process is none."""
    seen: set[ast.stmt] = set()
    for call in module.calls:
        what = _writes(module, call)
        if what is not None and any(
            is_stream(graph, module, a) for a in (*call.args, *[k.value for k in call.keywords])
        ):
            continue
        statement = _whole(module, call) if what is not None else None
        if what is not None and statement is not None and statement not in seen:
            seen.add(statement)
            yield Written(module, statement, what)


def downloads(module: Module, call: ast.Call) -> bool:
    """Whether a call fetches files, or unpacks what was fetched."""
    if any(k.arg == "download" and isinstance(k.value, ast.Constant) and k.value.value is True for k in call.keywords):
        return True
    dotted = module.qualified(call.func) or ""
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("extractall", "urlretrieve") and not dotted:
        return True  # an archive that was opened
    return dotted in _FETCHES or dotted.rpartition(".")[2] in _FETCHING


def is_forward(roles: Roles, module: Module, call: ast.Call) -> bool:
    """Whether a call runs a model, which on several processes all must do together."""
    return bool(roles.role(module, call.func) & Role.MODEL)


def _writes(module: Module, call: ast.Call) -> str | None:
    dotted = module.qualified(call.func)
    if dotted in _WRITERS:
        return dotted.rpartition(".")[2]
    if isinstance(call.func, ast.Attribute) and dotted is None and call.func.attr in _WRITING_METHODS:
        return call.func.attr
    if (
        isinstance(call.func, ast.Name)
        and call.func.id == "open"
        and module.resolve("open", module.scope(call)) is None
    ):
        mode = _argument(call, 1, "mode")
        if isinstance(mode, ast.Constant) and isinstance(mode.value, str) and _WRITING_MODE.search(mode.value):
            return "open"
    return None


def _whole(module: Module, call: ast.Call) -> ast.stmt | None:
    """The statement that a writing call makes up: the call itself, or the `with open(...)` around what it writes."""
    parent = module.parents[call]
    if isinstance(parent, ast.withitem):
        statement = module.parents[parent]
        return statement if isinstance(statement, ast.With) else None
    if isinstance(parent, ast.Expr):
        for around in module.ancestors(parent):
            if isinstance(around, ast.With) and any(_writes_item(module, item) for item in around.items):
                return None  # the block around it is the whole
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
                break
        return parent
    # `json.dump(log, open(path, "w"))`
    outer = module.parents.get(parent)
    if isinstance(parent, ast.Call) and isinstance(outer, ast.Expr):
        return outer
    return None


def _writes_item(module: Module, item: ast.withitem) -> bool:
    return isinstance(item.context_expr, ast.Call) and _writes(module, item.context_expr) == "open"


def _argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    if position < len(call.args):
        return call.args[position]
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _opened_by(module: Module, target: ast.expr | None) -> ast.With | None:
    """The `with open(...) as f:` that made a file object."""
    variable = module.variable(target) if isinstance(target, ast.Name) else None
    for binding in module.bindings(variable) if variable is not None else ():
        if binding.kind == "with" and isinstance(binding.statement, ast.With):
            if any(parent is binding.statement for parent in module.ancestors(target)):  # type: ignore[arg-type]
                return binding.statement
    return None


def is_stream(graph: CallGraph, module: Module, target: ast.expr) -> bool:
    """`io.BytesIO()`: memory of this process, which every process may write."""
    return any(
        isinstance(part, ast.Call) and (owner.qualified(part.func) or ast.unparse(part.func)) in _STREAMS
        for owner, part in contents(graph, module, target)
    )
