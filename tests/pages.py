"""What is in the pages of the documentation, and a way to do what they say.

Blocks of one page belong together: its Python blocks are one program, its console blocks one session, in an empty folder.
Comments that readers do not see say the rest:
    <!-- setup: cp "$ROOT"/fixtures/folds/before.py train.py -->    is done before the first block of the page
    <!-- parsed: needs two GPUs -->                                 the next block is parsed; launches and makes are planned
    <!-- long: trains ten times -->                                 likewise, but `make test-verify` runs it
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.warm import python

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>parsed|long): (?P<why>.+?) -->\n+)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)
COMMANDS = {
    "python": "",
    "accel": "-m accel_runtime",
    "accel-migrate": "-m accel_migrate",
    "torchrun": "-m torch.distributed.run",
}


@dataclass(frozen=True)
class Block:
    text: str
    why_parsed: str


@dataclass(frozen=True)
class Step:
    """A command of a console block, and what the page says that it prints."""

    command: str
    shown: tuple[str, ...]


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[Block]:
    found = BLOCK.finditer(page.read_text())
    return [Block(one["text"], _why_parsed(one)) for one in found if one["language"] == language]


def _why_parsed(block: re.Match[str]) -> str:
    return "" if block["mark"] == "long" and "VERIFY_ALL" in os.environ else block["why"] or ""


def setup(page: Path) -> str:
    return "\n".join(re.findall(r"^<!-- setup: (.+?) -->$", page.read_text(), re.M | re.S))


def steps(text: str) -> Iterator[Step]:
    """What follows each `$ `; a here-document goes on to its END, and a line that ends in a backslash in the next."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        size = 1
        lines = part.splitlines()
        if lines[0].endswith("<<'END'"):
            size = lines.index("END") + 1
        while lines[size - 1].endswith("\\"):
            size += 1
        yield Step("\n".join(lines[:size]), tuple(lines[size:]))


def prints(shown: tuple[str, ...], printed: str) -> bool:
    """Whether this was printed: `...` stands for anything in a line, and alone for any lines; `0.1 s` for any time."""
    patterns = [r"(?:.*\n)*?" if line.strip() == "..." else _line(line) + "\n" for line in shown]
    lines = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
    return bool(re.fullmatch("".join(patterns), lines))


def _line(shown: str) -> str:
    pattern = re.escape(shown.rstrip()).replace(r"\.\.\.", ".*")
    return re.sub(r"(?:\\ )*\b\d+\\\.\d\\ s\b", r" *\\d+\\.\\d s", pattern)


def planned(command: str) -> str:
    """The command where only its plan is asked for; whatever is not a launch is nothing."""
    words = shlex.split(command, comments=True)
    if words[0] == "make":
        return shlex.join(["make", "--dry-run", "--directory", str(ROOT), *words[1:]])
    if words[:2] != ["accel", "launch"] or "--submit" in words:
        return "true"
    return shlex.join([*words[:2], "--dry-run", *words[2:]])


def session(commands: list[str], folder: Path, beforehand: str = "") -> list[tuple[int, str]]:
    """Exit code and output of each, typed one after the other into one shell."""
    tools, said = folder / ".tools", folder / ".said"
    for made in (tools, said):
        made.mkdir()
    for name, module in COMMANDS.items():
        (tools / name).write_text(f'#!/bin/sh\nexec "{python()}" {module} "$@"\n')
        (tools / name).chmod(0o755)
    typed = [
        f"{{ {command}\n}} > {said}/{number} 2>&1 < /dev/null; echo $? > {said}/{number}.code"
        for number, command in enumerate(commands)
    ]
    environment = {
        **{name: value for name, value in os.environ.items() if name != "ACCEL_CONFIG"},
        "ROOT": str(ROOT),
        "PATH": f"{tools}:{os.environ['PATH']}",
        "HOME": str(folder / ".home"),
        "XDG_STATE_HOME": str(folder / ".home" / "state"),
        "XDG_CONFIG_HOME": str(folder / ".home" / "config"),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "120",
    }
    script = "\n".join([f"set -e\n{beforehand}\nset +e", *typed])
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [
        (int((said / f"{number}.code").read_text()), (said / str(number)).read_text())
        for number in range(len(commands))
    ]
