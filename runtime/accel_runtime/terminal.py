"""Whose output is seen: a rank that is not shown writes to its log, and what concerns the whole run still reaches people."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

# "main" shows the first rank of each machine; the launcher sets it for its ranks.
SHOW_RANKS = "ACCEL_SHOW_RANKS"
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"

_terminal: list[TextIO] = []


def terminal() -> TextIO:
    """Where a word for people goes, from a rank that is not shown too."""
    return _terminal[-1] if _terminal else sys.stderr


def log_of(environ: Mapping[str, str]) -> Path | None:
    """The file that takes this rank's output; None for a rank that is shown."""
    shown = environ.get(SHOW_RANKS) != "main" or environ.get("LOCAL_RANK", "0") == "0"
    own = environ.get(ERROR_FILE)
    return None if shown or not own else Path(own).with_name(f"rank_{environ['RANK']}.log")


def write_to(log: Path) -> None:
    """From here on, all that this process and its children write goes to the log, in the order in which it is written."""
    _terminal.append(os.fdopen(os.dup(2), "w", buffering=1))
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def print_to(log: Path) -> None:
    """As `write_to`, where standard output is not a file: in the process of a notebook."""
    seen = (sys.stdout, sys.stderr)
    _terminal.append(sys.stderr)
    sys.stdout = sys.stderr = log.open("a", buffering=1)
    for handler in logging.root.handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream in seen:
            handler.setStream(sys.stderr)
