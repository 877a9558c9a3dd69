"""Calls of libraries that write files, and the argument that names the file: facts that analysis and check both go by."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from accel_migrate.flow.nodes import called_name
from accel_migrate.flow.scopes import Module


class Argument(NamedTuple):
    """Where a call has its path: by position, or by name."""

    position: int
    name: str

    def of(self, call: ast.Call) -> ast.expr | None:
        if self.position < len(call.args):
            return call.args[self.position]
        return next((keyword.value for keyword in call.keywords if keyword.arg == self.name), None)


_IMAGEIO = tuple(
    f"imageio.{v}{n}" for v in ("", "v2.", "v3.") for n in ("imwrite", "imsave", "mimsave", "mimwrite", "get_writer")
)
_MOVES = ("os.rename", "os.replace", "shutil.move")
_ROWS = (
    (0, "file", ("numpy.save", "numpy.savez", "numpy.savez_compressed", "soundfile.write")),
    (0, "file_name", ("scipy.io.savemat",)),
    (0, "fname", ("numpy.savetxt", "matplotlib.pyplot.savefig", "matplotlib.pyplot.imsave", "matplotlib.image.imsave")),
    (0, "fname", ("skimage.io.imsave",)),
    (0, "uri", ("torchaudio.save", *_IMAGEIO)),
    (0, "filename", ("cv2.imwrite", "cv2.VideoWriter", "scipy.io.wavfile.write")),
    (0, "name", ("scipy.misc.imsave",)),
    (0, "path", ("shutil.rmtree", "os.remove", "os.unlink", "os.rmdir", "os.removedirs")),
    (0, "base_name", ("shutil.make_archive",)),
    (0, "src", _MOVES),
    (1, "dst", _MOVES),
    (1, "dst", ("shutil.copy", "shutil.copyfile", "shutil.copy2", "shutil.copytree", "os.symlink", "os.link")),
    (1, "fp", ("torchvision.utils.save_image",)),
    (1, "filename", ("torchvision.utils.write_png", "torchvision.io.write_png", "torchvision.io.write_jpeg")),
    (1, "filename", ("joblib.dump", "safetensors.torch.save_file", "safetensors.torch.save_model")),
    (1, "filename", ("safetensors.numpy.save_file",)),
    (1, "file", ("plotly.io.write_image",)),
    (1, "f", ("torch.save", "torch.jit.save")),
    (2, "f", ("torch.onnx.export",)),
)
# Functions that make, change or take away the file that an argument names.
WRITERS = {
    function: tuple(Argument(position, name) for position, name, functions in _ROWS if function in functions)
    for row in _ROWS
    for function in row[2]
}
# Those of them after which what they name first is gone.
_TAKING_AWAY = frozenset({"shutil.rmtree", "os.rmdir", "os.removedirs", *_MOVES})
# Methods that do so, by names that objects of other kinds do not have.
WRITING_METHODS = {
    "savefig": Argument(0, "fname"),
    "export_scalars_to_json": Argument(0, "path"),
    "export_chrome_trace": Argument(0, "path"),
    "export_stacks": Argument(0, "path"),
    "export_memory_timeline": Argument(0, "path"),
    "write_image": Argument(0, "file"),
    "write_html": Argument(0, "file"),
    "save_pretrained": Argument(0, "save_directory"),
    "save_vocabulary": Argument(0, "save_directory"),
    "tofile": Argument(0, "fid"),
    "to_csv": Argument(0, "path_or_buf"),
    "to_json": Argument(0, "path_or_buf"),
    "to_pickle": Argument(0, "path"),
    "to_parquet": Argument(0, "path"),
    "to_feather": Argument(0, "path"),
    "to_excel": Argument(0, "excel_writer"),
    "to_hdf": Argument(0, "path_or_buf"),
}
# Methods of a path itself.
CHANGING_PATHS = frozenset({"write_text", "write_bytes", "touch", "unlink", "rmdir", "symlink_to", "hardlink_to"})
READING_PATHS = frozenset(
    {"read_text", "read_bytes", "open", "stat", "lstat", "iterdir", "glob", "rglob", "walk", "rename", "replace"}
)
ASKING = frozenset({"exists", "lexists", "isfile", "isdir", "is_file", "is_dir", "access"})  # of os.path, os and paths
LISTING = frozenset({"glob", "iglob", "rglob", "iterdir", "listdir", "scandir", "walk"})
COMMANDS = frozenset({
    "os.system", "os.popen", "subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.Popen",
    "subprocess.check_output",
})  # fmt: skip
OPENERS = frozenset({
    "io.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open", "tarfile.open", "h5py.File", "zipfile.ZipFile", "wave.open",
    "smart_open.open",
})  # fmt: skip
# Those whose file may be changed unless they are told so: where that stands, and the modes that say it.
_KEPT_OPEN = {
    "numpy.memmap": (Argument(2, "mode"), ("r", "c")),
    "numpy.lib.format.open_memmap": (Argument(1, "mode"), ("r", "c")),
    "shelve.open": (Argument(1, "flag"), ("r",)),
}
# Functions that read the file that their first argument names, and change nothing.
READERS = frozenset({
    "numpy.load", "numpy.loadtxt", "numpy.genfromtxt", "numpy.fromfile", "pandas.read_csv", "pandas.read_json",
    "pandas.read_pickle", "pandas.read_parquet", "pandas.read_excel", "matplotlib.pyplot.imread", "matplotlib.image.imread",
    "cv2.imread", "PIL.Image.open", "imageio.imread", "imageio.v2.imread", "imageio.v3.imread", "joblib.load",
    "torchvision.io.read_image", "soundfile.read", "safetensors.torch.load_file", "safetensors.numpy.load_file",
    "os.path.getsize", "os.stat",
})  # fmt: skip
_ENDINGS = {"numpy.save": ".npy", "numpy.savez": ".npz", "numpy.savez_compressed": ".npz"}
_WRITING_MODE = re.compile(r"[bt]?[wax][bt+]*(:\w*)?|[bt]?r[bt]?\+[bt]?")


def is_writing_mode(mode: ast.expr | None) -> bool:
    """Whether a file that is opened so may be changed, whichever of two modes it is."""
    if isinstance(mode, ast.IfExp):
        return is_writing_mode(mode.body) and is_writing_mode(mode.orelse)
    return isinstance(mode, ast.Constant) and isinstance(mode.value, str) and bool(_WRITING_MODE.fullmatch(mode.value))


def opens_to_write(call: ast.Call, dotted: str | None) -> bool:
    """Whether a call opens a file that may be changed, because its mode does not say otherwise."""
    argument, reading = _KEPT_OPEN.get(dotted or "", (None, ()))
    mode = argument.of(call) if argument is not None else None
    return argument is not None and not (isinstance(mode, ast.Constant) and mode.value in reading)


def written_paths(call: ast.Call, dotted: str | None) -> list[ast.expr] | None:
    """The paths that a call may write to, by its full name where it has one; None where it is not known what it does."""
    name = called_name(call)
    owner = [call.func.value] if isinstance(call.func, ast.Attribute) and dotted is None else []
    if dotted in WRITERS:
        return [path for argument in WRITERS[dotted] if (path := argument.of(call)) is not None]
    if owner and name in WRITING_METHODS:
        return [path for path in (WRITING_METHODS[name].of(call),) if path is not None]
    if owner and (name in CHANGING_PATHS or name == "open"):
        return owner
    if (name == "open" and isinstance(call.func, ast.Name)) or dotted in OPENERS or dotted in _KEPT_OPEN:
        return call.args[:1]
    return None


def as_saved(path: str, dotted: str | None) -> str:
    """A path with the ending that a call gives it: `np.save("losses", rows)` writes losses.npy."""
    ending = _ENDINGS.get(dotted or "", "")
    return path if path.endswith(ending) else path + ending


MAKING_FOLDERS = frozenset({"os.makedirs", "os.mkdir", ".mkdir"})


def folder_made(call: ast.Call, dotted: str | None) -> ast.expr | None:
    """The folder that a call makes."""
    if dotted in ("os.makedirs", "os.mkdir"):
        return Argument(0, "name" if dotted == "os.makedirs" else "path").of(call)
    is_method = dotted is None and isinstance(call.func, ast.Attribute) and call.func.attr == "mkdir"
    return call.func.value if is_method and isinstance(call.func, ast.Attribute) else None


def sought(module: Module, node: ast.AST, name: str) -> ast.Call | None:
    """The question for a file by whose answer a loop finds a name: `while exists(path): path = ...`, `if exists(path): break`."""
    for loop in module.ancestors(node):
        if isinstance(loop, ast.While | ast.For):
            ends = [loop.test] if isinstance(loop, ast.While) else []
            for choice in module.walk(loop, ast.If):
                if any(isinstance(each, ast.Break | ast.Return) for each in choice.body):
                    ends.append(choice.test)
            for call in (call for test in ends for call in module.walk(test, ast.Call)):
                if called_name(call) in ASKING and any(each.id == name for each in module.walk(call, ast.Name)):
                    return call
    return None


def taken_away(call: ast.Call, dotted: str | None) -> ast.expr | None:
    """The file or folder that a call removes or moves elsewhere."""
    if dotted in _TAKING_AWAY:
        return WRITERS[dotted][0].of(call)
    is_method = dotted is None and isinstance(call.func, ast.Attribute) and call.func.attr == "rmdir"
    return call.func.value if is_method and isinstance(call.func, ast.Attribute) else None
