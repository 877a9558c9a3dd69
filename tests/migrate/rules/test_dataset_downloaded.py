"""AM604: downloads by every process, wherever they are written."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.settings import DEFAULTS
from accel_migrate.source import Source

from tests.migrate.rules.scripts import codes, training

CORPUS = """
    from torchvision import datasets


    def raw(folder):
        return datasets.MNIST(folder, download=True)


    class Digits:
        def __init__(self, folder):
            self.rows = raw(folder)
    """


@pytest.mark.parametrize("given", ["FETCH = True", "FETCH = False\nif not os.path.exists('d'):\n    FETCH = True"])
def test_a_constant_that_is_true_asks_for_a_download(given: str) -> None:
    assert "AM604" in codes(training(functions=f'{given}\nraw = Digits("d", download=FETCH)\n'))


@pytest.mark.parametrize("given", ["FETCH = False", "def fetch(FETCH): ...", "import FETCH"])
def test_a_constant_that_is_not_true_asks_for_none(given: str) -> None:
    assert "AM604" not in codes(training(functions=f'{given}\nraw = Digits("d", download=FETCH)\n'))


@pytest.mark.parametrize(("line", "told"), [("Digits('d')", True), ("raw('d')", True), ("None", False)])
def test_a_download_in_another_file_is_told_where_it_is_asked_for(line: str, told: bool) -> None:
    script = training(functions=f"from corpus import Digits, raw\nrows = {line}\n")
    texts = {"train.py": script.lstrip("\n"), "corpus.py": dedent(CORPUS).lstrip("\n")}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in texts.items()], DEFAULTS)
    notes = [(result.path.name, note) for result in results for note in result.notes if note.code == "AM604"]
    lines = texts["train.py"].split("\n")
    assert [(name, line in lines[note.line - 1]) for name, note in notes] == [("train.py", True)] * told
