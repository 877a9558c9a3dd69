"""One JSON object for each step, in a file that any tool can read."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accel_runtime.options import METRICS_POINTER
from accel_runtime.tracking import GeneralTracker, plain


class JsonLinesTracker(GeneralTracker):
    name = "jsonl"
    requires_logging_directory = True

    def __init__(self, run_name: str, logging_dir: Path, filename: str = "metrics.jsonl") -> None:
        self.directory = Path(logging_dir) / run_name
        self.directory.mkdir(parents=True, exist_ok=True)
        self._path = self.directory / filename
        self._file = self._path.open("a", encoding="utf-8")

    def start(self) -> None:
        tell_launcher(self._path)

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        text = json.dumps(dict(values), indent=2, default=_readable)
        (self.directory / "config.json").write_text(text + "\n", encoding="utf-8")

    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        line = {"step": step, "time": time.time(), **values}
        self._file.write(json.dumps(line, default=_readable) + "\n")
        # Whoever watches the file sees the step when it happened.
        self._file.flush()

    def state(self) -> dict[str, Any]:
        return {"bytes": self._path.stat().st_size}

    def resume(self, state: dict[str, Any]) -> None:
        """Lines after the checkpoint move to a file beside: the resumed run writes them again."""
        with self._path.open("rb+") as file:
            file.seek(state["bytes"])
            if after := file.read():
                with self._path.with_suffix(".superseded.jsonl").open("ab") as beside:
                    beside.write(after)
                file.truncate(state["bytes"])

    def finish(self) -> None:
        self._file.close()


def tell_launcher(lines: Path, environ: Mapping[str, str] = os.environ) -> None:
    """The launcher of this run, if there is one, shows what is written here at the foot of the terminal."""
    if pointer := environ.get(METRICS_POINTER):
        Path(pointer).write_text(str(lines.resolve()))


def _readable(value: Any) -> Any:
    number = plain(value)
    return str(number) if number is value else number
