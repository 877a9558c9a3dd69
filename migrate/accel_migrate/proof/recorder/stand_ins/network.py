"""The network is not asked: what wanted it is told where it asked, and what to bring instead."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accel_migrate.proof.recorder.journal import callers


class NetworkRefusedError(ConnectionError):
    """The proof runs on stand-ins, and this has no stand-in."""


def refusal(host: str, copy: Path) -> NetworkRefusedError:
    """Of a host, with the line of the project that asks for it."""
    for frame in callers():
        place = Path(frame.f_code.co_filename).resolve()
        if place.is_relative_to(copy):
            return NetworkRefusedError(
                f"{place.relative_to(copy)}:{frame.f_lineno} asks for {host}, which has no stand-in"
            )
    return NetworkRefusedError(f"{host} is asked for, which has no stand-in")


def refuse(is_near: Callable[[str], bool], copy: Path) -> None:
    """From now on hosts other than this one are not looked up."""

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.getaddrinfo" and not is_near(str(arguments[0])):
            raise refusal(f"{arguments[0]}:{arguments[1]}", copy)

    sys.addaudithook(heard)
