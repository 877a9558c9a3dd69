"""AM607: code that was not analysed, and that every process runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.settings import DEFAULTS, Settings
from accel_migrate.source import Source

from tests.migrate.rules.scripts import codes, training
from tests.migrate.rules.verbs import noted


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("np.save('x.npy', x)", "writes a file (drawing.py:5)"),
        ("import os; os.system('convert x.png x.gif')", "runs a command (drawing.py:5)"),
        ("import tokenizers; tokenizers.Tokenizer().save('x.json')", "writes a file (drawing.py:5)"),
        (
            "import PIL.Image; shown = lambda: PIL.Image.fromarray(x); shown().save(str(x))",
            "saves something (drawing.py:5)",
        ),
        ("x.picture.save(str(x))", "saves something (drawing.py:5)"),
        ("import PIL.Image; PIL.Image.fromarray(x).convert('L').save(str(x))", "writes a file (drawing.py:5)"),
        ("import requests; requests.post('http://x', data=x)", "sends something (drawing.py:5)"),
        ("import sqlite3; sqlite3.connect('x.db').execute('delete')", "opens a database (drawing.py:5)"),
        ("x.figure.show()", "opens a window (drawing.py:5)"),
        ("import codecs; codecs.open('x', 'w', 'utf-8')", "writes a file (drawing.py:5)"),
        ("import pathlib; pathlib.Path('x').open('w')", "writes a file (drawing.py:5)"),
        ("open('x', 'a' if x else 'w')", "writes a file (drawing.py:5)"),
        ("how = 'wb' if x else 'ab'; open('x', how)", "writes a file (drawing.py:5)"),
        ("print(x)", "prints (drawing.py:5)"),
        ("print(x); np.save('x.npy', x)", "writes a file (drawing.py:5) and prints (drawing.py:5)"),
        ("import os; os.path.exists('d') or os.mkdir('d')", "makes a folder (drawing.py:5)"),
        (
            "import logging; logging.getLogger().addHandler(logging.FileHandler('x.log'))",
            "opens a log file (drawing.py:5)",
        ),
        ("import logging; logging.basicConfig(filename='x.log')", "opens a log file (drawing.py:5)"),
        ("from tensorboardX import SummaryWriter; SummaryWriter('runs')", "opens an event file (drawing.py:5)"),
        ("import mlflow; mlflow.log_metric('x', x)", "logs to a tracker (drawing.py:5)"),
        ("import wandb; wandb.init()", "logs to a tracker (drawing.py:5)"),
        ("sys.stdout.write(str(x))", "prints (drawing.py:5)"),
    ],
)
@pytest.mark.parametrize("third", ["import torch", "import json"])
def test_names_what_a_file_does_that_is_not_changed(line: str, what: str, third: str):
    drawing = f"import sys\nimport numpy as np\n{third}\ndef draw(x):\n    {line}\n"
    script = training(functions="import drawing\n", after="drawn = drawing.draw(total)")
    files = {"train.py": script, "drawing.py": drawing}
    results = migrate(
        [Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], Settings(prints="once")
    )
    (message,) = [note.message for result in results for note in result.notes if note.code == "AM607"]
    assert "drawing.draw() (line" in message
    assert what in message


@pytest.mark.parametrize(
    ("functions", "after"),
    [
        ("from sklearn.metrics import f1_score\n", "print(f1_score(y, y))"),
        ("from shaping import shape\n", "y = shape(y)"),  # gets nothing that is prepared, and gives something back
        ("def judge(net):\n    return 1\n", "judge(model)"),
        ("from judging import judge\n", ""),
        ("from blending import blend\n", "mixed = blend(y)\nmixed.detach_()"),
        ("from judging import judge\nme = int(os.environ.get('RANK', 0))\n", "if me == 0:\n    judge(model)"),
    ],
)
def test_says_nothing_otherwise(functions: str, after: str):
    assert "AM607" not in codes(training(functions=functions, after=after))


NOTED = "import numpy as np\nimport torch\nimport torch.distributed as dist\n{functions}"
WRITE = "def write(x):\n    np.save('x.npy', x)\n"


@pytest.mark.parametrize(
    ("functions", "noted_too"),
    [
        (WRITE, True),
        (WRITE + "def once(x):\n    if dist.get_rank() == 0:\n        write(x)\n", True),  # another script's guard
        ("def write(x):\n    if dist.get_rank() == 0:\n        np.save('x.npy', x)\n", False),
        ("import io\ndef write(x):\n    memory = io.BytesIO()\n    np.save(memory, x)\n    return memory\n", False),
        (
            "def really(x):\n    np.save('x.npy', x)\ndef write(x):\n    if dist.get_rank() == 0:\n        really(x)\n",
            False,
        ),
        (
            "import functools\ndef keep(x):\n    np.save('x.npy', x)\ndef write(x):\n    return functools.partial(keep, x)\n",
            True,
        ),
        ("def keep(x):\n    np.save('x.npy', x)\ndef write(x):\n    return {'keep': keep}\n", True),
        ("def keep(x):\n    np.save('x.npy', x)\ndef write(x):\n    return np.keep(x)\n", False),
    ],
)
def test_a_guard_counts_only_on_the_way_of_the_call(functions: str, noted_too: bool):
    script = training(functions="import drawing\n", after="written = drawing.write(total)")
    files = {"train.py": script, "drawing.py": NOTED.format(functions=functions)}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
    assert any(note.code == "AM607" for result in results for note in result.notes) == noted_too


@pytest.mark.parametrize(
    "line",
    ["import os; os.makedirs('d', exist_ok=True)", "import logging; logging.basicConfig(level=20)", "np.mean(x)"],
)
def test_says_nothing_of_what_may_be_done_by_all(line: str):
    files = {
        "train.py": training(functions="import drawing\n", after="drawing.draw(total)"),
        "drawing.py": f"import numpy as np\ndef draw(x):\n    {line}\n",
    }
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
    assert "AM607" not in {note.code for result in results for note in result.notes}


TRAINED = """
def train(args):
    loader = DataLoader(TensorDataset(torch.randn(40, 3)), batch_size=4)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
"""
CALLER = """import logging, os
from torch.utils.tensorboard import SummaryWriter
from trained import train
class Writer(SummaryWriter):
    pass
def main():
{lines}
    train(None)
main()
"""


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("os.path.exists('d') or os.mkdir('d')", "makes a folder (start.py:7)"),
        ("Writer('runs')", "opens an event file (start.py:7)"),
        ("logging.basicConfig(filename='x.log')", "opens a log file (start.py:7)"),
        ("open('options.txt', 'w').write('x')", "writes a file (start.py:7)"),
        ("os.makedirs('d', exist_ok=True)", None),
        ("if int(os.environ['RANK']) == 0: os.mkdir('d')", None),
    ],
)
def test_names_what_the_file_does_that_calls_the_training(line: str, what: str | None):
    head = "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n"
    files = {"start.py": CALLER.format(lines=f"    {line}"), "trained.py": head + TRAINED}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()])
    found = [note.message for result in results for note in result.notes if note.code == "AM607"]
    assert [what in each for each in found if what is not None] == ([True] if what is not None else [])
    assert len(found) == (what is not None)


def test_names_each_line_that_calls_the_helper():
    drawing = "import numpy as np\ndef draw(x, name='x.npy'):\n    np.save(name, x)\n    return x\n"
    script = training(
        functions="import drawing\n", after="drawn = drawing.draw(total)\nagain = drawing.draw(total, 'y.npy')"
    )
    files = {"train.py": script, "drawing.py": drawing}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
    (message,) = [note.message for result in results for note in result.notes if note.code == "AM607"]
    lines = [number for number, line in enumerate(script.splitlines(), 1) if "drawing.draw(" in line]
    assert f"drawing.draw() (line {lines[0]}, {lines[1]}) writes a file" in message


def test_names_a_file_that_torch_writes_before_the_training():
    data = "import torch\n\n\ndef cached():\n    torch.save(torch.ones(3), 'x.pt')\n    return torch.load('x.pt')\n"
    script = training(functions="from tables import cached\nrows = cached()\n")
    files = {"train.py": script, "tables.py": data}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()])
    (message,) = [note.message for result in results for note in result.notes if note.code == "AM607"]
    assert "writes a file (tables.py:5, which is read in the run)" in message


@pytest.mark.parametrize("form", ["from drawing import draw", "import drawing", "from drawing import *"])
def test_names_what_a_file_does_when_it_is_imported(form: str) -> None:
    drawing = (
        "from tensorboardX import SummaryWriter\nwriter = SummaryWriter('runs')\ndef draw(x):\n    writer.flush()\n"
    )
    drawing += "if __name__ == '__main__':\n    open('x', 'w')\n"
    files = {"train.py": training(functions=form + "\n"), "drawing.py": drawing}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
    (message,) = [note.message for result in results for note in result.notes if note.code == "AM607"]
    assert "what this file imports opens an event file (drawing.py:2);" in message


@pytest.mark.parametrize(
    ("kept", "called"),
    [
        ("def keep():\n    open('x', 'w')\n", "keep()"),
        ("class Words:\n    @staticmethod\n    def keep():\n        open('x', 'w')\n", "Words.keep()"),
        ("class Words:\n    @classmethod\n    def keep(cls):\n        open('x', 'w')\n", "words = Words.keep()"),
        ("def really():\n    open('x', 'w')\ndef keep():\n    really()\n", "keep()"),
    ],
)
@pytest.mark.parametrize("runs", [True, False])
def test_names_what_a_file_calls_when_it_is_imported(kept: str, called: str, runs: bool) -> None:
    tables = kept + (f"if not ready:\n    {called}\n" if runs else f"if __name__ == '__main__':\n    {called}\n")
    files = {"train.py": training(functions="from tables import ready\n"), "tables.py": "ready = False\n" + tables}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
    found = [note.message for result in results for note in result.notes if note.code == "AM607"]
    assert ["what this file imports writes a file (tables.py:" in message for message in found] == [True] * runs


def test_names_a_tracker_that_may_not_be_installed() -> None:
    log = "try:\n    from visdom import Visdom\nexcept ImportError:\n    Visdom = None\n"
    log += "class Log:\n    def __init__(self):\n        self.page = Visdom()\n"
    files = {"train.py": training(functions="from log import Log\n", ready="log = Log()"), "log.py": log}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
    (message,) = [note.message for result in results for note in result.notes if note.code == "AM607"]
    assert "Log() (line 22) logs to a tracker (log.py:7)" in message


KEPT = """import torch
class Schedule:
    def __init__(self):
        self.rates = torch.ones(3)
    def to(self, device):
        self.rates = self.rates.to(device)
        return {returned}
    def keep(self):
        open('rates', 'w').write(str(self.rates))
"""


@pytest.mark.parametrize(("returned", "followed"), [("self", True), ("self.rates", False)])
def test_follows_an_object_of_the_project_that_is_moved_as_it_is_made(returned: str, followed: bool) -> None:
    script = training(
        functions="from kept import Schedule\n", ready="rates = Schedule().to(device)", after="kept = rates.keep()"
    )
    files = {"train.py": script, "kept.py": KEPT.format(returned=returned)}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
    found = [note.message for result in results for note in result.notes if note.code == "AM607"]
    assert ["rates.keep() (line" in each and "writes a file (kept.py:9)" in each for each in found] == [True] * followed


def test_tells_a_question_that_only_one_process_can_be_answered():
    assert "only the first has the terminal" in noted(training(after="input('again?')"), "AM607")
    assert "AM607" not in codes(training(functions="def input(text):\n    return text\n", after="input('again?')"))
    assert "AM607" not in codes(training(functions="def ask():\n    return input('again?')\n"))
    asks = "def again():\n    return input('again?')\n"
    train = training(functions="import asking\n", after="asking.again()")
    sources = [
        Source.from_bytes(Path(f"{name}.py"), text.encode()) for name, text in (("train", train), ("asking", asks))
    ]
    told = [note.message for result in migrate(sources) for note in result.notes if note.code == "AM607"]
    assert ["asks at the terminal (asking.py:2)" in each for each in told] == [True]


def test_names_all_questions_and_what_becomes_of_those_without_an_answer():
    asked = "import_ = input('a')\nother = input('b')"
    assert "(as in line " in noted(training(after=asked), "AM607")
    for catching, told in (
        ("except:\n    rate = 0.1", "go on with another value"),
        ("except (ValueError, EOFError):\n    rate = 0.1", "go on with another value"),
        ("except Exception:\n    raise SystemExit", "the others end with EOFError"),
        ("except Exception:\n    sys.exit(1)", "the others end with EOFError"),
        ("except ValueError:\n    rate = 0.1", "the others end with EOFError"),
    ):
        assert told in noted(training(ready=f"try:\n    rate = float(input())\n{catching}"), "AM607")


def test_tells_a_window_that_every_process_opens():
    imported = "import matplotlib.pyplot as plt\n"
    assert "every process opens this window" in noted(training(functions=imported, after="plt.show()"), "AM607")
    shown = imported + "def figure():\n    plt.show()\n"
    assert "every process opens this window" in noted(training(functions=shown, after="figure()"), "AM607")
    assert "AM607" not in codes(training(functions=shown))


def test_tells_what_a_dataclass_opens_once_its_fields_are_set():
    book = (
        "from dataclasses import dataclass\nfrom torch.utils.tensorboard import SummaryWriter\n@dataclass\nclass Book:\n"
        "    place: str\n    def __post_init__(self):\n        self.writer = SummaryWriter(self.place)\n"
    )
    train = training(functions="from book import Book\n", ready="book = Book('runs')")
    sources = [
        Source.from_bytes(Path(f"{name}.py"), text.encode()) for name, text in (("train", train), ("book", book))
    ]
    told = [note.message for result in migrate(sources) for note in result.notes if note.code == "AM607"]
    assert ["opens an event file (book.py:7)" in each for each in told] == [True]


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ("import json\n", []),
        ("import left\nimport right\nleft.main()\nright.main()\n", []),
        ("import left\nleft.main()\nopen('done', 'w')\n", ["left.py"]),
    ],
)
def test_what_another_training_does_for_itself_is_not_done_by_a_caller(start: str, told: list[str]):
    rounds = (
        "def train(net, optimizer, batches, device):\n    net.train()\n    for x, y in batches:\n        optimizer.zero_grad()\n"
        "        x, y = x.to(device), y.to(device)\n        (net(x) - y).square().mean().backward()\n        optimizer.step()\n"
    )
    script = (
        "import os\nimport torch\nfrom torch.utils.data import DataLoader, TensorDataset\n"
        "from rounds import train\ndef main():\n"
        "    device = torch.device('cuda')\n    net = torch.nn.Linear(4, 1).to(device)\n"
        "    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n    os.makedirs('SIDE')\n"
        "    batches = DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8, 1)), 4)\n"
        "    train(net, optimizer, batches, device)\n"
        "    torch.save(net.state_dict(), 'SIDE/net.pt')\n"
    )
    files = {"rounds.py": rounds, "start.py": start}
    files |= {f"{side}.py": script.replace("SIDE", side) for side in ("left", "right")}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
    assert {r.path.name for r in results if r.after != r.before} == {"rounds.py", "left.py", "right.py"}
    assert [result.path.name for result in results for note in result.notes if note.code == "AM607"] == told


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("kept[0].save('x')", "kept[0].save() (line 32) saves something"),
        ("kept.save_weights('x')", "kept.save_weights() (line 32) saves something"),
        ("requests.post('http://x', data=x)", "requests.post() (line 32) sends something"),
        ("smtplib.SMTP('x').sendmail('a', 'b', 'c')", "smtplib.SMTP() (line 32) sends something"),
        ("sqlite3.connect('x.db')", "sqlite3.connect() (line 32) opens a database"),
        ("kept.push_to_hub('me/x')", "kept.push_to_hub() (line 32) sends something"),
        ("kept.show()", "every process opens this window"),
        ("if int(os.environ['RANK']) == 0:\n    kept.save('x')", None),
        ("kept.save_for_backward(x)", None),
    ],
)
def test_names_what_the_script_itself_does_outside_of_its_process(line: str, what: str | None):
    script = training(functions="import requests, smtplib, sqlite3\nkept = json.loads('[]')\n", after=line)
    if what is None:
        assert "AM607" not in codes(script)
    else:
        assert what in noted(script, "AM607")


@pytest.mark.parametrize(
    "given", ["atexit.register({})", "threading.Thread(target={}).start()", "fit = partial(train, at_end={})"]
)
def test_a_function_that_is_handed_on_may_run(given: str):
    imported = "import atexit, threading\nfrom functools import partial\nimport drawing\n"
    own = training(functions=f"{imported}def keep():\n    np.save('x', 1)\n{given.format('keep')}\n")
    assert "every process writes this file" in noted(own, "AM504")
    asked = training(functions=f"{imported}def keep():\n    input()\n{given.format('keep')}\n")
    assert "only the first has the terminal" in noted(asked, "AM607")
    files = {
        "train.py": training(functions=imported + given.format("drawing.keep") + "\n"),
        "drawing.py": "def keep():\n    open('x', 'w')\n",
    }
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
    (message,) = [note.message for result in results for note in result.notes if note.code == "AM607"]
    assert "drawing.keep() (line " in message and "writes a file (drawing.py:2)" in message


@pytest.mark.parametrize(
    ("base", "used", "runs"),
    [
        ("", "Log()", False),
        ("", "logs = [Log()]\nlogs[0].keep()", True),
        ("", "log = Log()\ntorch.keep()", False),
        ("(nn.Module)", "log = Log()", False),
        ("(Callback)", "log = Log()", True),
    ],
)
def test_a_method_runs_where_something_may_call_it(base: str, used: str, runs: bool):
    log = f"from callbacks import Callback\nclass Log{base}:\n    def keep(self):\n        np.save('x', 1)\n"
    assert ("AM504" in codes(training(functions=f"{log}\n{used}\n"))) is runs


def test_the_forward_of_a_model_runs_though_nobody_names_it():
    net = "class Net(nn.Module):\n    def forward(self, x):\n        np.save('x', 1)\n        return x\n"
    assert "AM504" in codes(training(functions=net, ready="model.head = Net()"))


def test_follows_a_question_to_the_try_around_its_function():
    asking = "def pace():\n    return float(input())\n"
    caught = "try:\n    rate = pace()\nexcept Exception:\n    rate = 0.1\n"
    assert "which is caught (line 16), and go on" in noted(training(functions=asking + caught), "AM607")
    assert "the others end with EOFError" in noted(training(functions=f"{asking}rate = pace()\n"), "AM607")


def test_a_figure_without_a_screen_opens_no_window():
    imported = "import matplotlib\n{}import matplotlib.pyplot as plt\n"
    chosen = "matplotlib.use('Agg')\n"
    assert "AM607" not in codes(training(functions=imported.format(chosen), after="plt.show()"))
    maybe = f"if not os.environ.get('DISPLAY'):\n    {chosen}"
    assert "AM607" in codes(training(functions=imported.format(maybe), after="plt.show()"))
    assert "AM607" in codes(training(functions=imported.format("matplotlib.use('TkAgg')\n"), after="plt.show()"))


def test_says_that_a_cache_is_waited_for_where_the_run_reads_it_back():
    words = (
        "import os, pickle\n\n\nclass Words:\n    def __init__(self, path):\n        self.path = path\n"
        "        if os.path.exists(self.path):\n            self.words = pickle.load(open(self.path, 'rb'))\n"
        "        else:\n            self.words = {}\n            {kept}\n"
    )
    script = training(functions="from words import Words\n", ready="words = Words('words.pkl')")
    for kept, told in (
        ("pickle.dump(1, open(self.path, 'wb'))", True),
        ("pickle.dump(1, open('log.pkl', 'wb'))", False),
    ):
        texts = {"train.py": script, "words.py": words.replace("{kept}", kept)}
        results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in texts.items()])
        (message,) = [note.message for result in results for note in result.notes if note.code == "AM607"]
        assert "Words() (line" in message
        assert ("come by accelerator.wait_for_everyone() before they look for what it writes" in message) is told


@pytest.mark.parametrize(("made", "told"), [("nets.kinds[sys.argv[1]](3)", True), ("elsewhere()", False)])
def test_says_what_a_script_does_that_trains_what_a_table_makes(made: str, told: bool) -> None:
    nets = (
        "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\n\n\nclass Small:\n"
        "    def __init__(self, width):\n        self.model = nn.Linear(width, 1)\n"
        "        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)\n\n"
        "    def fit(self, rows):\n        loader = DataLoader(rows, batch_size=4)\n        for x, y in loader:\n"
        "            self.optimizer.zero_grad()\n            loss = nn.functional.mse_loss(self.model(x), y)\n"
        "            loss.backward()\n            self.optimizer.step()\n\n\nkinds = {'small': Small}\n"
    )
    script = (
        f"import os\nimport sys\nimport nets\nimport rows\n\nnet = {made}\nos.makedirs('log')\nnet.fit(rows.rows)\n"
    )
    texts = {"nets.py": nets, "run.py": script}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in texts.items()])
    messages = [note.message for result in results for note in result.notes if note.code == "AM607"]
    assert any("what calls this file makes a folder (run.py:7)" in each for each in messages) is told
