"""Which files run together, by what they import."""

from __future__ import annotations

from pathlib import Path

from accel_migrate.flow.imports import Imports
from accel_migrate.source import Source


def together(changed: str, **texts: str) -> set[str]:
    files = [Source.from_bytes(Path(f"{name.replace('__', '/')}.py"), text.encode()) for name, text in texts.items()]
    found = Imports(files).together([file for file in files if file.path == Path(f"{changed}.py")])
    return {str(path.with_suffix("")) for path in found}


def test_a_file_runs_with_what_it_imports_and_with_those_that_import_it() -> None:
    texts = {"main": "import engine", "engine": "from tools import keep", "tools": "", "other": "import tools"}
    assert together("engine", **texts) == {"main", "engine", "tools"}
    assert together("tools", **texts) == {"main", "engine", "tools", "other"}


def test_a_name_means_the_file_beside_or_above_first() -> None:
    texts = {"a__train": "import model", "a__model": "", "b__model": "", "model": ""}
    assert together("a/train", **texts) == {"a/train", "a/model", "model"}
    assert together("c/train", c__train="import model", a__model="", b__model="") == {"c/train", "a/model", "b/model"}


def test_whole_names_and_relative_ones() -> None:
    texts = {"a__train": "from lib.model import Net", "lib__model": "", "b__lib__model": "", "a__model": ""}
    assert together("a/train", **texts) == {"a/train", "lib/model"}
    texts = {
        "p__a__train": "from ..model import Net\nfrom . import tools",
        "p__model": "",
        "p__a__tools": "",
        "model": "",
    }
    assert together("p/a/train", **texts) == {"p/a/train", "p/model", "p/a/tools"}
