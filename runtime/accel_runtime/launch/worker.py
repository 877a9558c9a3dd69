"""What each rank runs first: it ties its life to the launcher's, records how it failed, and then is the user's script.

Nothing of torch is imported here, so the script starts as it would under `python`.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

from accel_runtime.errors import AccelError
from accel_runtime.foreign import is_foreign
from accel_runtime.launch.lost import lost_another
from accel_runtime.launch.strangers import refuse_strangers
from accel_runtime.terminal import ERROR_FILE, log_of, write_to

LAUNCHER_PID = "ACCEL_LAUNCHER_PID"
# Set when all ranks share a terminal: there the tracebacks that follow from the first would bury it.
FOLD = "ACCEL_FOLD_TRACEBACKS"

_PR_SET_PDEATHSIG = 1


def main() -> None:
    die_with_launcher(int(os.environ.get(LAUNCHER_PID, os.getppid())))
    if log := log_of(os.environ):
        write_to(log)
    sys.excepthook = report_failure
    _, *command = sys.argv
    refuse_strangers(" ".join(command[:2] if command[0] == "-m" else command[:1]), os.environ.get("WORLD_SIZE", "many"))
    try:
        run_module(command[1:]) if command[0] == "-m" else run_script(command)
    except SystemExit as ended:
        # No excepthook sees it, and a rank that exits makes others fail as much as one that raises.
        if ended.code not in (None, 0):
            record_failure(SystemExit, ended, ended.__traceback__)
        raise


def run_module(command: list[str]) -> None:
    """Run a module by what `python -m` itself calls: run_module() would clear the globals that exit handlers need."""
    sys.argv = command
    if not sys.flags.safe_path:
        sys.path[0] = str(Path.cwd())
    runpy._run_module_as_main(command[0])  # type: ignore[attr-defined]


def run_script(command: list[str]) -> None:
    """Run the script as `python script.py` does, in a module of its own that outlives the run."""
    path = Path(command[0])
    module = ModuleType("__main__")
    module.__dict__.update(__file__=str(path.absolute()), __builtins__=__builtins__, __cached__=None)
    sys.modules["__main__"] = module
    sys.argv = command
    if not sys.flags.safe_path:
        sys.path[0] = str(path.resolve().parent)
    exec(_compiled(path), module.__dict__)


def _compiled(path: Path) -> CodeType:
    return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)


def die_with_launcher(launcher: int) -> None:
    """No orphans: a killed launcher takes its ranks along, so that no device stays held."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(launcher,), daemon=True).start()
    if os.getppid() != launcher:
        os.kill(os.getpid(), signal.SIGTERM)


def _watch(launcher: int) -> None:
    while os.getppid() == launcher:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


def report_failure(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback, unless another rank's end explains this one: then the launcher's digest has it."""
    if issubclass(kind, KeyboardInterrupt):
        return
    folded = FOLD in os.environ and (_others_failed() or lost_another(f"{kind.__name__}: {error}"))
    record_failure(kind, error, trace)
    if not folded:
        sys.stderr.write(_traceback(kind, error, _frames_of_the_script(trace)))


def _traceback(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> str:
    """The traceback; of what this package refuses, the script's own lines alone, since the message says the rest."""
    own = [step for step in traceback.extract_tb(frames) if not is_foreign(step.filename)]
    if not issubclass(kind, AccelError) or not own or FOLD not in os.environ:
        return "".join(traceback.format_exception(kind, error, frames))
    lines = [*traceback.format_list(own), *traceback.format_exception_only(kind, error)]
    return "".join(["Traceback (most recent call last):\n", *lines])


def _frames_of_the_script(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames that lead from here to the user's first line."""
    own = (__file__, str(Path(__file__).with_name("function.py")), runpy.__file__, "<frozen runpy>")
    while trace is not None and trace.tb_frame.f_code.co_filename in own:
        trace = trace.tb_next
    return trace


def _where(frames: TracebackType | None) -> str:
    steps = traceback.extract_tb(frames)
    mine = [step for step in steps if not is_foreign(step.filename)] or steps
    return f" ({mine[-1].filename}:{mine[-1].lineno})" if mine else ""


def _others_failed() -> bool:
    """Whether another rank of this machine and attempt has already left its error file."""
    own = os.environ.get(ERROR_FILE)
    return own is not None and any(path != Path(own) for path in Path(own).parent.parent.glob("*/error.json"))


def record_failure(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Leave what torch's agent reads, with the moment in fractions of a second and the place as well."""
    own = os.environ.get(ERROR_FILE)
    if own is None:
        return
    frames = _frames_of_the_script(trace)
    lines = "".join(traceback.format_exception(kind, error, frames))
    now = time.time()
    extra = {"py_callstack": lines, "timestamp": str(int(now)), "moment": now, "where": _where(frames)}
    extra["rank"] = os.environ.get("RANK", "0")
    notes = getattr(error, "__notes__", [])
    said = traceback.format_exception_only(kind, error)
    message = " ".join(map(str.strip, said[-1 - sum(note.count("\n") + 1 for note in notes) :]))
    beside = Path(own + ".tmp")
    beside.write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))
    beside.replace(own)


if __name__ == "__main__":
    main()
