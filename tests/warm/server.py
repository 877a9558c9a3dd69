"""`server.py SOCKET PYTHON`: imports torch once, and forks a program for every client that asks; PYTHON is the client.

A launcher's ranks are forked too, by a process that the launcher starts before it has threads, and adopted by the launcher:
they are its children, as those that it starts itself.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import io
import json
import os
import pickle
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

PR_SET_CHILD_SUBREAPER = 36
LAUNCHERS = (["-m", "accel_runtime", "launch"], ["-m", "accel_runtime", "test"], ["-m", "torch.distributed.run"])
PRELOADED = (
    "accel_migrate.run",
    "accel_runtime.accelerator",
    "accel_runtime.strategies.ddp",
    "torch._dynamo",  # which the first optimizer imports
    "torch.distributed.run",
)
# What an interpreter, torch and its libraries read once, when they start.
READ_AT_START = ("PYTHON", "OMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "TORCH_L", "TORCH_C", "LD_")


@dataclass(frozen=True)
class Program:
    """What a process is to become."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    streams: list[int]

    @property
    def unbuffered(self) -> bool:
        return self.arguments[:1] == ["-u"] or bool(self.environment.get("PYTHONUNBUFFERED"))

    @property
    def what(self) -> list[str]:
        """A script or `-m` and a module, with their arguments."""
        return self.arguments[self.arguments[:1] == ["-u"] :]

    def fits(self) -> bool:
        """Whether a fork of this process is as good as a new interpreter with these variables."""
        given = {"PYTHONHASHSEED": HASH_SEED, **self.environment}  # where it would be drawn, this one is as good
        here, there = ({k: v for k, v in e.items() if k.startswith(READ_AT_START)} for e in (ENVIRONMENT, given))
        return here == there and bool(self.what) and (self.what[0] == "-m" or not self.what[0].startswith("-"))


def serve(path: str) -> Program:
    """Returns in the forked processes alone, each with what it is to become."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    ended, end = os.pipe()
    os.set_blocking(end, False)
    signal.set_wakeup_fd(end)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    print("ready", flush=True)
    running: dict[socket.socket, int] = {}
    while True:
        ready, _, _ = select.select([listener, ended, sys.stdin, *running], [], [])
        if sys.stdin in ready:
            os._exit(0)
        if ended in ready:
            os.read(ended, 4096)
            _tell_ends(running)
        for client in [client for client in running if client in ready]:
            number = client.recv(1)
            os.kill(running[client], number[0] if number else signal.SIGKILL)
            if not number:
                del running[client]
                client.close()
        if listener in ready:
            client, _ = listener.accept()
            program = Program(**_received(client))
            if not program.fits():
                client.sendall(b"n")
            elif (pid := os.fork()) == 0:
                return program
            else:
                running[client] = pid
                client.sendall(b"y")
            for stream in program.streams:
                os.close(stream)


def _received(client: socket.socket) -> dict[str, Any]:
    size, streams, _, _ = socket.recv_fds(client, 4, 3)
    text = b""
    while len(text) < int.from_bytes(size, "big"):
        text += client.recv(1 << 16)
    return {**json.loads(text.decode("utf-8", "surrogateescape")), "streams": streams}


def _tell_ends(running: dict[socket.socket, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        for client in [client for client, child in running.items() if child == pid]:
            del running[client]
            with client:
                client.sendall(status.to_bytes(4, "big"))


def become(program: Program) -> NoReturn:
    """Run the program as a new interpreter would, to the end of this process."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGINT}:
        if number < 32:
            signal.signal(number, signal.SIG_DFL)
    for number, stream in enumerate(program.streams):
        os.dup2(stream, number)
    os.closerange(3, 256)
    os.chdir(program.folder)
    os.environ.clear()
    os.environ.update(program.environment)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = _written_to(1, program.unbuffered)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _written_to(2, program.unbuffered)  # type: ignore[misc]
    sys.executable = PYTHON
    import_module("numpy").random.seed()  # it was drawn in the server
    if any(program.what[: len(launcher)] == launcher for launcher in LAUNCHERS):
        fork_ranks()
    run(program.what)


def _written_to(number: int, unbuffered: bool) -> io.TextIOWrapper:
    raw = open(number, "wb", 0 if unbuffered else -1, closefd=False)  # noqa: SIM115
    lines = number == 2 or os.isatty(number)
    errors = "backslashreplace" if number == 2 else "strict"
    return io.TextIOWrapper(raw, "utf-8", errors, line_buffering=lines, write_through=unbuffered)


def run(what: list[str]) -> NoReturn:
    sys.modules["__main__"] = module = ModuleType("__main__")
    module.__dict__["__builtins__"] = __builtins__
    try:
        if what[0] == "-m":
            sys.argv = what[1:]
            sys.path[0] = str(Path.cwd())
            runpy._run_module_as_main(what[1])  # type: ignore[attr-defined]
        else:
            sys.argv = what
            sys.path[0] = str(Path(what[0]).resolve().parent)
            module.__dict__.update(__file__=what[0], __cached__=None)
            exec(compile(Path(what[0]).read_bytes(), what[0], "exec", dont_inherit=True), module.__dict__)
    except SystemExit as ended:
        if ended.code is not None and not isinstance(ended.code, int):
            print(ended.code, file=sys.stderr)
        end(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
    except Exception as error:
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        end(1)
    end(0)


def end(code: int) -> NoReturn:
    """As an interpreter ends, but for taking apart what is shared with the server."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code & 0xFF)


def fork_ranks() -> None:
    """Torch's agent, from now on, has its ranks forked where that is as good as a start."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    launcher = os.getpid()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    end, other = socket.socketpair()
    if os.fork() == 0:
        end.close()
        _fork_on_request(other, launcher)
    other.close()
    plain = subprocess_handler.SubprocessHandler._popen

    def popen(self: Any, args: tuple[str, ...], env: dict[str, str]) -> subprocess.Popen[bytes]:
        streams = [
            0,
            *(stream.fileno() if stream else number for number, stream in ((1, self._stdout), (2, self._stderr))),
        ]
        program = Program(list(args[1:]), env, str(Path.cwd()), [])
        if args[0] != PYTHON or not program.fits():
            return plain(self, args, env)
        text = pickle.dumps((program.arguments, env, program.folder))
        socket.send_fds(end, [len(text).to_bytes(4, "big")], streams)
        end.sendall(text)
        process = subprocess.Popen.__new__(subprocess.Popen)
        process.__dict__.update(
            args=args, stdin=None, stdout=None, stderr=None, returncode=None, encoding=None, errors=None
        )
        process.__dict__.update(text_mode=None, _child_created=True, _input=None, _communication_started=False)
        process.__dict__.update(_waitpid_lock=threading.Lock(), _sigint_wait_secs=0.25)
        process.pid = int.from_bytes(end.recv(4), "big")
        return process

    subprocess_handler.SubprocessHandler._popen = popen  # type: ignore[method-assign]


def _fork_on_request(asked: socket.socket, launcher: int) -> None:
    """Fork for the launcher; the process between ends at once, so that the launcher adopts the rank."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    while True:
        size, streams, _, _ = socket.recv_fds(asked, 4, 3)
        if not size:
            os._exit(0)
        text = b""
        while len(text) < int.from_bytes(size, "big"):
            text += asked.recv(1 << 16)
        if (between := os.fork()) == 0:
            if (rank := os.fork()) == 0:
                while os.getppid() != launcher:
                    time.sleep(0.001)
                os.setsid()
                arguments, environment, folder = pickle.loads(text)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                program = Program(arguments, environment, folder, streams)
                raise Become(program)
            asked.sendall(rank.to_bytes(4, "big"))
            os._exit(0)
        os.waitpid(between, 0)
        for stream in streams:
            os.close(stream)


class Become(BaseException):
    """Leaves everything that the launcher had begun to do."""


_, SOCKET, PYTHON = sys.argv
ENVIRONMENT = dict(os.environ)
HASH_SEED = os.environ["PYTHONHASHSEED"]
for module in PRELOADED:
    import_module(module)
gc.collect()
gc.freeze()  # or every collection of every program would copy what they share

program = serve(SOCKET)
while True:
    try:
        become(program)
    except Become as rank:
        program = rank.args[0]
