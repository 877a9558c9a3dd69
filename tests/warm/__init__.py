"""A `python` for tests whose programs are forked from a process that has torch already: see server.py.

A start of torch costs 2 s of CPU, and its first optimizer 2 s more; a launch on two processes is three starts. What a program
computes, prints and returns is its own, as are its arguments, variables, folder, signals and process group. What it is not
is a fresh interpreter: tests of start-up, of imports and of kills have one, `sys.executable`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


@cache
def python() -> str:
    """The path of the interpreter; its server is started once, and ends with this process."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    path = folder / "python"
    path.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -IS "{HERE}/client.py" "{folder}/socket" "{sys.executable}" "$@"\n'
    )
    path.chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, str(HERE / "server.py"), str(folder / "socket"), str(path)],
        stdin=subprocess.PIPE,  # its end is the end of this process
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},  # as a launcher sets them
    )
    assert server.stdout and server.stdout.readline() == b"ready\n"
    return str(path)
