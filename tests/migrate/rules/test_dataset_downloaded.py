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


@pytest.mark.parametrize(
    ("brought", "made"),
    [
        ("from torch_geometric.datasets import Planetoid", "Planetoid('data', 'Cora')"),
        ("import torchtext", "torchtext.datasets.AG_NEWS()"),
        ("from ogb.nodeproppred import PygNodePropPredDataset", "PygNodePropPredDataset('ogbn-arxiv')"),
        ("from torchtext.vocab import GloVe", "GloVe('6B')"),
        ("from torchtext.legacy import datasets", "datasets.Multi30k.splits(('.de', '.en'), fields)"),
        ("from torchtext.datasets import Multi30k", "Multi30k.splits(('.de', '.en'), fields)"),
        ("from torchtext.data import Field", "Field().build_vocab(rows, vectors='glove.6B.100d')"),
        ("from sklearn.datasets import fetch_openml", "fetch_openml('adult')"),
    ],
)
def test_notes_a_library_that_fetches_without_being_told(brought: str, made: str) -> None:
    assert "AM604" in codes(training(functions=f"{brought}\nraw = {made}\n"))


def test_says_nothing_of_what_a_library_computes() -> None:
    functions = "from sklearn.datasets import make_moons\nraw = make_moons(9)\n"
    assert "AM604" not in codes(training(functions=functions))
    counted = "from words import Field\nField().build_vocab(rows, vectors=table)\n"
    assert "AM604" not in codes(training(functions=counted))


def test_notes_a_dataset_of_graphs_that_fetches_when_it_is_made() -> None:
    graphs = """
from torch_geometric.data import InMemoryDataset, download_url


class Molecules(InMemoryDataset):
    def __init__(self, root):
        super().__init__(root)

    def download(self):
        download_url("https://example.org/molecules.zip", self.raw_dir)
"""
    script = training(functions="from graphs import Molecules\nraw = Molecules('data')\n")
    files = {"train.py": script, "graphs.py": graphs}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
    assert [result.path.name for result in results for note in result.notes if note.code == "AM604"] == ["train.py"]


@pytest.mark.parametrize(("bases", "told"), [("(InMemoryDataset)", True), ("", False)])
def test_a_method_that_downloads_is_called_only_by_a_class_that_it_is_derived_from(bases: str, told: bool) -> None:
    corpus = f"""
    import urllib.request
    from torch_geometric.data import InMemoryDataset


    class Rows{bases}:
        def __init__(self, folder):
            self.folder = folder

        def download(self):
            urllib.request.urlretrieve("http://rows", self.folder)
    """
    script = training(functions="from corpus import Rows\nrows = Rows('d')\n").lstrip("\n")
    texts = {"train.py": script, "corpus.py": dedent(corpus).lstrip("\n")}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in texts.items()], DEFAULTS)
    assert told == ("AM604" in {note.code for result in results for note in result.notes})


@pytest.mark.parametrize(("line", "told"), [("rows = raw('d')", True), ("rows = None", False)])
def test_a_download_that_an_import_starts_is_told_with_its_place(line: str, told: bool) -> None:
    corpus = dedent(CORPUS).lstrip("\n") + f"\n\n{line}\n"
    texts = {"train.py": training(functions="from corpus import rows\n").lstrip("\n"), "corpus.py": corpus}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in texts.items()], DEFAULTS)
    messages = [note.message for result in results for note in result.notes if note.code == "AM604"]
    assert ["missing (corpus.py:5), into" in message for message in messages] == [True] * told


@pytest.mark.parametrize(
    ("default", "call", "told"),
    [("=True", "", True), ("=False", "", False), ("=True", "download=False", False)],
)
def test_a_parameter_that_is_true_by_default_asks_for_a_download(default: str, call: str, told: bool) -> None:
    functions = f"def rows(download{default}):\n    return Digits('d', download=download)\nraw = rows({call})\n"
    assert ("AM604" in codes(training(functions=functions))) == told


@pytest.mark.parametrize(
    ("asked", "downloaded"),
    [
        ("requests.get('https://chat.example/send')", False),
        ("requests.get('https://chat.example/send').raise_for_status()", False),
        ("sent = requests.get('https://chat.example/send')\nprint(sent.status_code)", False),
        ("rows = requests.get('https://data.example/rows').content", True),
        ("came = requests.get('https://data.example/rows')\nprint(came.ok)\nkeep(came.content)", True),
    ],
)
def test_a_request_whose_answer_nobody_takes_is_sent(asked: str, downloaded: bool) -> None:
    found = codes(training(functions=f"import requests\n{asked}\n"))
    assert ("AM604" in found) is downloaded
    assert ("AM607" in found) is not downloaded


@pytest.mark.parametrize(("given", "fetches"), [("True", True), ("False", False)])
def test_what_is_handed_on_in_a_dictionary(given: str, fetches: bool) -> None:
    options = f'if small:\n    options = {{"root": "d"}}\nelse:\n    options = {{"root": "d", "download": {given}}}\n'
    source = training(functions=f"from elsewhere import small\n{options}raw = Digits(**options)\n")
    assert ("AM604" in codes(source)) is fetches
