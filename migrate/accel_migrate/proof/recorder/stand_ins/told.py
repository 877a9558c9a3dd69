"""What was stood in for what, written down as it happens; a proof on it is no proof on the script's own data."""

from __future__ import annotations

import json
from pathlib import Path

NAME = "stand-ins"


class Told:
    """One line for each thing, in a file that the processes of a run share."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / NAME
        self._said: set[str] = set()

    def say(self, what: str, how: str) -> None:
        line = json.dumps([what, how])
        if line not in self._said:
            self._said.add(line)
            with self.file.open("a", encoding="utf-8") as stream:
                stream.write(line + "\n")
