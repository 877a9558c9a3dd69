"""What a call does that is seen outside of its process, and that N processes must not do N times."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from accel_migrate.analysis.storage.files import (
    asks_only,
    makes_folder,
    opens_events,
    opens_log,
    runs_command,
    saves,
    tracker,
    writes,
    writes_memory,
)
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.flow.nodes import is_call_of, unparse
from accel_migrate.flow.scopes import Module

ASKING = {
    "input", "breakpoint",
    "getpass.getpass", "sys.stdin.readline", "sys.stdin.read", "click.prompt", "click.confirm", "pdb.set_trace", "ipdb.set_trace",
}  # fmt: skip
_PLOTTED = {"matplotlib.pyplot.show", "matplotlib.pyplot.pause", "matplotlib.pylab.show", "pylab.show"}
_WINDOWS = {*_PLOTTED, "cv2.imshow", "cv2.waitKey", "webbrowser.open", "webbrowser.open_new", "webbrowser.open_new_tab"}
_SENDS = (
    "requests.post", "requests.put", "requests.patch", "requests.delete", "requests.request", "smtplib.", "ftplib.",
    "http.client.", "http.server.", "socket.socket", "socketserver.", "telnetlib.", "xmlrpc.", "huggingface_hub.upload_",
)  # fmt: skip
_SAVING = re.compile(r"save(_(?!for_backward)\w+)?")
_SHOWING = re.compile("show")
_UPLOADING = re.compile("push_to_hub")
_CATCHING = {"EOFError", "Exception", "BaseException"}
_WITHOUT_SCREEN = ("agg", "Agg", "AGG", "pdf", "svg", "ps", "template")


def deed(script: Script, training: Training, module: Module, call: ast.Call) -> str | None:
    """The gravest thing that a call does; None where it leaves nothing outside of its process."""
    return next((name for name, is_done in DEEDS.items() if is_done(script, training, module, call)), None)


def _is_method(script: Script, module: Module, call: ast.Call, name: re.Pattern[str]) -> bool:
    """Whether such a method is called of an object that nobody can read: it does what its name says."""
    named = isinstance(call.func, ast.Attribute) and name.fullmatch(call.func.attr) is not None
    return named and module.qualified(call.func) is None and script.roles.target(module, call) is None


def _sends(script: Script, module: Module, call: ast.Call) -> bool:
    """Whether a call reaches other machines, other than to fetch from them."""
    sends = module.full_name(call.func).startswith(_SENDS) or asks_only(module, call)
    return sends or _is_method(script, module, call, _UPLOADING)


def opens_window(script: Script, training: Training, module: Module, call: ast.Call) -> bool:
    """`plt.show()`, which waits until someone closes it, or `picture.show()`; not where figures have no screen."""
    dotted = module.qualified(call.func)
    if dotted in _PLOTTED:
        return not any(map(_has_no_screen, script.loaded(training)))
    return dotted in _WINDOWS or _is_method(script, module, call, _SHOWING)


def _has_no_screen(module: Module) -> bool:
    """`matplotlib.use("Agg")`, or a notebook, whose figures come under its cells."""
    chosen = ("matplotlib.use", "matplotlib.pyplot.switch_backend")
    return module.source.path.suffix == ".ipynb" or any(
        module.qualified(call.func) in chosen
        and module.statement(call) in module.tree.body
        and any(isinstance(name, ast.Constant) and name.value in _WITHOUT_SCREEN for name in call.args)
        for call in module.calls
    )


def asks(module: Module, call: ast.Call) -> bool:
    """`input()` and the like, which of N processes only the one that has the terminal is answered."""
    if module.qualified(call.func) in ASKING:
        return True
    return is_call_of(call, "input", "breakpoint") and module.resolve(call.func.id, module.scope(call)) is None


def caught_by(script: Script, module: Module, call: ast.Call) -> tuple[Module, ast.ExceptHandler] | None:
    """The handler that goes on where nobody answers a question: around it, or around a call of its function."""
    pending: list[tuple[Module, ast.AST]] = [(module, call)]
    for owner, asked in pending:
        inner = asked
        for parent in owner.ancestors(asked):
            handler = _handler(parent, inner)
            if handler is not None and any(_ends(node) for node in owner.walk(handler)):
                break
            if handler is not None:
                return owner, handler
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
                pending += [site for site in script.graph.all_sites.get(parent, ()) if site not in pending]
                break
            inner = parent
    return None


def _handler(around: ast.AST, inner: ast.AST) -> ast.ExceptHandler | None:
    """The first one of a `try` that an EOFError of its body comes to."""
    for handler in around.handlers if isinstance(around, ast.Try) and inner in around.body else ():
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if any(kind is None or unparse(kind) in _CATCHING for kind in kinds):
            return handler
    return None


def _ends(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) or (
        isinstance(node, ast.Call) and unparse(node.func) in ("exit", "quit", "sys.exit", "os._exit")
    )


def shows(module: Module, call: ast.Call) -> bool:
    """Whether a call prints, or writes to the terminal by itself."""
    if module.qualified(call.func) in ("sys.stdout.write", "sys.stderr.write", "pprint.pprint", "pprint.pp"):
        return True
    return (
        is_call_of(call, "print")
        and module.resolve("print", module.scope(call)) is None
        and all(_is_terminal(module, keyword.value) for keyword in call.keywords if keyword.arg == "file")
    )


def _is_terminal(module: Module, file: ast.expr) -> bool:
    """`sys.stdout`, or a variable that may be it."""
    variable = module.variable(file) if isinstance(file, ast.Name) else None
    values = [file] if variable is None else [b.value for b in module.bindings(variable) if b.value is not None]
    return any(
        module.qualified(part) in ("sys.stdout", "sys.stderr")
        for value in values
        for part in module.walk(value, ast.Attribute)
    )


DEEDS: dict[str, Callable[[Script, Training, Module, ast.Call], bool]] = {
    "writes a file": lambda script, _, module, call: (
        (writes(module, call) or saves(script.graph, module, call)) and not writes_memory(script.graph, module, call)
    ),
    "saves something": lambda script, _, module, call: (  # `shown.save(path)`, of an object that nobody can read
        _is_method(script, module, call, _SAVING) and not writes_memory(script.graph, module, call)
    ),
    "makes a folder": lambda _, __, module, call: makes_folder(module, call),
    "opens a database": lambda _, __, module, call: module.qualified(call.func) == "sqlite3.connect",
    "opens a log file": lambda _, __, module, call: opens_log(module, call),
    "opens an event file": lambda script, _, module, call: opens_events(script.roles, module, call),
    "logs to a tracker": lambda _, __, module, call: (
        tracker(module, call) is not None or module.qualified(call.func) == "wandb.init"
    ),
    "sends something": lambda script, _, module, call: _sends(script, module, call),
    "runs a command": lambda _, __, module, call: runs_command(module, call),
    "asks at the terminal": lambda _, __, module, call: asks(module, call),
    "opens a window": opens_window,
    "prints": lambda _, __, module, call: shows(module, call),
}
