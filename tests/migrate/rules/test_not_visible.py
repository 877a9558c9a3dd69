"""AM812: what cannot be read is said, with what depends on it; what can be read is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.source import Source

from tests.migrate.rules.scripts import codes, training
from tests.migrate.rules.verbs import noted

CODE, LOSS, LENGTHS, LAYERS, ORDER, KEPT, DOWNLOADS = (
    "which was not analysed",
    "how the loss is reduced",
    "how long the batches are",
    "which layers",
    "in which order",
    "keeps from step to step: where",
    "downloads: a run on one process first",
)


def built(functions: str, model: str) -> str:
    return training(functions=functions).replace("model = nn.Linear(3, 2)", f"model = {model}")


def said(source: str) -> str:
    return noted(source, "AM812") if "AM812" in codes(source) else ""


def test_says_nothing_where_all_can_be_read():
    assert "AM812" not in codes(training(inside="total += loss.item()", after="print(total)"))


@pytest.mark.parametrize(
    ("functions", "ready", "after", "name"),
    [
        ("from judging import judge\n", "", "print(judge(model, test_loader))", "judge()"),
        ("from .notes import Book\nbook = Book('runs')\n", "", "book.note(total)", "Book()"),
        ("import drawing\n", "", "drawing.save_pictures(x, 'x.png')", "drawing.save_pictures()"),
        ("from tools import seeded\n", "seeded(3)", "", "seeded()"),
        ("from tools import settings\nrate = settings()['rate']\n", "", "", "settings()"),
        ("from tools import told\n@told\ndef tell():\n    pass\n", "tell()", "", "told()"),
        ("from tools import Base\nclass Mine(Base):\n    pass\n", "Mine()", "", "Base()"),
        ("from tools import hook\n", "model.register_forward_hook(hook)", "", "hook()"),
    ],
)
def test_names_code_that_was_not_given(functions: str, ready: str, after: str, name: str) -> None:
    message = said(training(functions=functions, ready=ready, after=after))
    assert f"{name} (line" in message
    assert CODE in message


@pytest.mark.parametrize(
    ("functions", "ready"),
    [
        ("from tools import RATE\n", "rate = RATE"),
        ("import settings\n", "rate = settings.rate"),
        ("from tools import Odd\n", "print(isinstance(model, Odd))"),
        ("from tools import tell\ndef never():\n    tell()\n", ""),
        ("import json\n", "json.dumps({})"),
    ],
)
def test_says_nothing_of_what_is_only_read_or_never_run(functions: str, ready: str) -> None:
    assert CODE not in said(training(functions=functions, ready=ready))


def test_says_nothing_of_code_that_was_given():
    script = training(functions="from judging import judge\n", after="print(judge(total))")
    files = {"train.py": script, "judging.py": "def judge(total):\n    return total\n"}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()])
    assert not [note for result in results for note in result.notes if note.code == "AM812"]


def test_says_what_data_parallel_did_for_it():
    source = training(functions="from judging import judge\n", after="print(judge(model, test_loader))")
    assert "DataParallel" not in said(source)
    wrapped = source.replace("criterion = nn.Cross", "model = nn.DataParallel(model)\ncriterion = nn.Cross")
    assert "its wrapper moved" in said(wrapped)
    assert "its wrapper moved" not in said(wrapped.replace("model, test_loader))", "test_loader))"))


@pytest.mark.parametrize(
    ("functions", "model"),
    [
        ("import timm\n", "timm.create_model('resnet18')"),
        ("import torchvision.models as models\n", "models.__dict__[sys.argv[1]](num_classes=2)"),
        ("import torchvision.models as models\n", "getattr(models, sys.argv[1])()"),
        ("import torchvision\n", "torchvision.models.segmentation.fcn_resnet50()"),
        ("from transformers import AutoModelForImageClassification as Auto\n", "Auto.from_pretrained('x')"),
        ("", "torch.load('model.pt')"),
        ("", "torch.hub.load('some/where', 'net')"),
        ("import importlib\n", "importlib.import_module('nets.' + name).net"),
        (
            "import timm\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.body = timm.create_model('x')\n    def forward(self, x):\n        return self.body(x)\n",
            "Net()",
        ),
    ],
)
def test_says_that_layers_cannot_be_read(functions: str, model: str) -> None:
    assert LAYERS in said(built(functions, model))


@pytest.mark.parametrize(
    ("functions", "model"),
    [
        ("", "nn.Sequential(nn.Linear(3, 2), nn.ReLU())"),
        ("from transformers import AutoModel\n", "AutoModel.from_pretrained('x')"),
        ("import torchvision.models as models\n", "models.vgg16()"),
        ("import torchvision.models as models\n", "models.resnet18()"),  # AM804 speaks of it
        (
            "class Net(nn.Module):\n    def __init__(self, act=nn.ReLU):\n        super().__init__()\n"
            "        self.body = nn.Sequential(nn.Linear(3, 2), act())\n    def forward(self, x):\n"
            "        for layer in self.body:\n            x = layer(x)\n        return x\n",
            "Net()",
        ),
    ],
)
def test_says_nothing_of_layers_that_are_known(functions: str, model: str) -> None:
    assert LAYERS not in said(built(functions, model))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("DataLoader(data, batch_size=4, shuffle=True)", False),
        ("DataLoader(data, batch_size=4)", False),
        ("DataLoader(Rows(), batch_size=4)", False),
        ("DataLoader(rows(), batch_size=4)", False),  # of which is said that nobody has read it
        ("DataLoader(part, batch_size=4)", False),
        ("DataLoader(eval('data'), batch_size=4)", True),
        ("DataLoader(rows(), batch_size=4, shuffle=True)", False),
        ("DataLoader(Odd(), batch_size=4)", True),
        ("DataLoader(Odd(), **shuffled)", False),
        ("DataLoader(Odd(), **dict(batch_size=4, shuffle=True))", False),
        ("DataLoader(Odd(), **straight)", True),
        ("DataLoader(load_dataset('x', streaming=True), batch_size=4)", True),
        ("DataLoader(load_dataset('x')['train'], batch_size=4)", False),
        ("DataLoader([(torch.randn(3), i % 3) for i in range(8)], batch_size=4)", False),
        ("DataLoader([(torch.randn(3), 1)] * 8, batch_size=4)", False),
        ("DataLoader(pairs, batch_size=4)", False),
        ("DataLoader(eval('data') + 1, batch_size=4)", True),
    ],
)
def test_says_that_the_order_of_samples_cannot_be_read(data: str, told: bool) -> None:
    functions = (
        "from datasets import load_dataset\nfrom tools import rows\nclass Odd(torch.utils.data.Dataset):\n    pass\n"
    )
    functions += "pairs = [(torch.randn(3), -i) for i in range(8)]\n"
    functions += "part, other = rows()\nshuffled = {'shuffle': True}\nstraight = {'batch_size': 4}\n"
    functions += "class Rows(torch.utils.data.Dataset):\n    def __getitem__(self, i):\n        return i, i\n"
    source = training(functions=functions).replace("DataLoader(data, batch_size=4, shuffle=True)", data)
    assert (ORDER in said(source)) == told


@pytest.mark.parametrize(
    ("collate", "told"),
    [
        ("None", False),
        ("lambda rows: torch.stack(rows)", False),
        ("together", False),
        ("Together()", False),
        ("put_together", False),
        ("lambda rows: pad_sequence(rows)", True),
        ("longest", True),
        ("partial(together, 3)", True),
        ("tools.collate", True),
    ],
)
def test_says_that_a_mean_may_be_over_batches_of_different_length(collate: str, told: bool):
    functions = (
        "import tools\nfrom functools import partial\nfrom torch.nn.utils.rnn import pad_sequence\n"
        "def together(rows):\n    return torch.stack(rows)\n"
        "def longest(rows):\n    return torch.zeros(len(rows), max(map(len, rows)))\n"
        "class Together:\n    def __call__(self, rows):\n        return torch.stack(rows)\n"
        "put_together = Together()\n"
    )
    collated = f"DataLoader(data, batch_size=4, shuffle=True, collate_fn={collate})"
    source = training(functions=functions).replace("DataLoader(data, batch_size=4, shuffle=True)", collated)
    assert LOSS not in said(source)
    assert (LENGTHS in said(source)) == told


def test_follows_a_function_to_the_data_that_it_gives():
    functions = "def rows():\n    return {}\n"
    for given, told in (("TensorDataset(torch.ones(4, 3))", False), ("eval('data')", True)):
        source = training(functions=functions.format(given))
        assert (
            ORDER in said(source.replace("DataLoader(data, batch_size=4, shuffle=True)", "DataLoader(rows())"))
        ) == told
        both = training(functions=functions.format(f"{given}, 4") + "part, count = rows()\n")
        assert (ORDER in said(both.replace("DataLoader(data, batch_size=4, shuffle=True)", "DataLoader(part)"))) == told
    filled = "def rows():\n    kept = []\n    for i in range(8):\n        kept.append((i, i))\n    return kept\n"
    source = training(functions=filled)
    assert ORDER not in said(source.replace("DataLoader(data, batch_size=4, shuffle=True)", "DataLoader(rows())"))


@pytest.mark.parametrize(
    ("functions", "told"),
    [
        ("from transformers import AutoTokenizer\ntokens = AutoTokenizer.from_pretrained('x')\n", True),
        ("from torchvision.models import vgg16\nfeatures = vgg16(pretrained=sys.argv[1])\n", True),
        ("from torchvision.models import vgg16\nfeatures = vgg16(True)\n", True),
        ("from torchvision.datasets import MNIST\nmore = MNIST('x', download=sys.argv[1])\n", True),
        ("from torchtext.vocab import Vectors\ntable = Vectors('words.txt')\n", True),
        ("from torchtext.vocab import build_vocab_from_iterator\nvocab = build_vocab_from_iterator(rows)\n", False),
        ("from torchvision.models import vgg16\nfeatures = vgg16(pretrained=False)\n", False),
        ("from torchvision.datasets import MNIST\nmore = MNIST('x')\n", False),
    ],
)
def test_says_that_something_may_be_downloaded(functions: str, told: bool) -> None:
    assert (DOWNLOADS in said(training(functions=functions))) == told


def test_one_download_of_a_data_set_speaks_for_the_others() -> None:
    functions = "from torchvision.datasets import MNIST\nmore = MNIST('x', download=sys.argv[1])\n"
    assert DOWNLOADS not in said(training(functions=functions + "most = MNIST('x', download=True)\n"))


def test_says_what_may_be_kept_from_step_to_step():
    functions = "class Bank:\n    def __init__(self):\n        self.rows = []\n"
    functions += (
        "    def put(self, row):\n        self.rows.append(row)\n        return sum(self.rows)\nbank = Bank()\n"
    )
    kept = training(functions=functions, loss="criterion(model(x), y) * bank.put({})")
    assert KEPT not in said(kept.replace("{}", "x.mean()"))  # AM811 speaks of it
    assert "AM811" in codes(kept.replace("{}", "x.mean()"))
    assert KEPT not in said(kept.replace("{}", "1"))


def test_numbers_what_is_several():
    source = training(functions="from tools import rate\n", loss="rate(model(x), y)")
    source = source.replace("nn.Linear(3, 2)", "torch.load('x.pt')")
    assert "(1) what rate()" in said(source)
    assert "(2) how the loss is reduced, at rate() (line" in said(source)
    assert "(3) which layers torch.load()" in said(source)


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("def grow(self, x):\n        return self(x)", False),
        ("def grow(this, x):\n        return [this(x) for _ in range(2)]", False),
        ("@classmethod\n    def grow(cls):\n        return cls()", False),
        ("@staticmethod\n    def grow(kind):\n        return kind()", True),
        ("def grow(self, kind):\n        return kind()", True),
    ],
)
def test_a_model_that_calls_itself_builds_nothing_unseen(method: str, told: bool) -> None:
    net = "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.rows = nn.Linear(3, 2)\n"
    net += f"    {method}\n"
    net += "    def forward(self, x):\n        return self.rows(x)\n"
    assert (LAYERS in said(training(functions=net).replace("nn.Linear(3, 2).to", "Net().to"))) == told


BUILT_TOGETHER = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def build():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = {criterion}
    return model, optimizer, criterion

def fit(batches):
    model, optimizer, criterion = build()
    for x, y in batches:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()

fit({loader})
"""
SHUFFLED = "DataLoader(TensorDataset(torch.ones(4, 3), torch.ones(4)), batch_size=2, shuffle=True)"


def test_follows_a_criterion_out_of_a_tuple_and_a_loader_that_is_built_where_it_is_handed_over():
    mean = BUILT_TOGETHER.format(criterion="nn.CrossEntropyLoss()", loader=SHUFFLED)
    assert "AM812" not in codes(mean)
    summed = BUILT_TOGETHER.format(criterion="nn.CrossEntropyLoss(reduction='sum')", loader=SHUFFLED)
    assert "summed over the batch" in noted(summed, "AM802")
    unordered = SHUFFLED.replace(", shuffle=True", "").replace("TensorDataset(", "eval(")
    assert ORDER in said(BUILT_TOGETHER.format(criterion="nn.CrossEntropyLoss()", loader=unordered))


@pytest.mark.parametrize(
    ("seeded", "functions", "told"),
    [
        ("torch.manual_seed(0)\n", "", True),
        ("torch.manual_seed(0)\n", "noise = nn.Dropout(0.5)\n", True),
        ("torch.seed()\n", "", False),
    ],
)
def test_layers_that_cannot_be_read_may_drop_alike(seeded: str, functions: str, told: bool) -> None:
    source = training(functions=functions).replace("nn.Linear(3, 2)", "torch.load('x.pt')")
    source = source.replace("import torch\n", f"import torch\n{seeded}", 1)
    assert LAYERS in said(source)
    assert ("with dropout every process may draw the same numbers" in said(source)) is told


def test_layers_whose_statistics_are_of_all_processes_may_drop_alike_all_the_same() -> None:
    converted = "nn.SyncBatchNorm.convert_sync_batchnorm(torch.load('x.pt'))"
    source = training().replace("nn.Linear(3, 2)", converted)
    alike = source.replace("import torch\n", "import torch\ntorch.manual_seed(0)\n", 1)
    assert "builds: with dropout every process may draw the same numbers" in said(alike)
    assert "batch normalisation" not in said(alike)
    assert LAYERS not in said(source.replace("import torch\n", "import torch\ntorch.seed()\n", 1))


@pytest.mark.parametrize(
    ("read", "builds"),
    [
        ("net.load_state_dict(torch.load('a.pt'))", False),
        ("kept = torch.load('a.pt')\n    net.load_state_dict(kept['net'])", False),
        ("net.inner = torch.load('a.pt')", True),
    ],
)
def test_a_file_of_weights_builds_no_layers(read: str, builds: bool) -> None:
    functions = (
        f"def build(size):\n    net = nn.Sequential(nn.Linear(size, 2))\n    {read}\n    return nn.Sequential(net)\n"
    )
    assert ("which layers torch.load()" in said(built(functions, "build(3)"))) is builds


@pytest.mark.parametrize(
    ("table", "kept", "told"),
    [
        ("nn.__dict__", "self.kinds = kinds", True),
        ("{'a': nn.Linear, 'b': nn.Bilinear}", "self.kinds = kinds", False),
        ("nn.__dict__", "self.kinds = {}\n        self.kinds.update(kinds)", True),
    ],
)
def test_layers_that_an_object_looks_up_by_name(table: str, kept: str, told: bool) -> None:
    functions = (
        f"class Maker:\n    def __init__(self, kinds):\n        {kept}\n"
        f"    def __call__(self, name):\n        return self.kinds[name](3, 2)\nmake = Maker({table})\n"
        "class Net(nn.Module):\n    def __init__(self, names):\n        super().__init__()\n"
        "        self.layers = nn.Sequential(*[make(name) for name in names])\n"
        "    def forward(self, x):\n        return self.layers(x)\n"
    )
    assert (LAYERS in said(built(functions, "Net(os.environ['LAYERS'].split())"))) is told


def test_a_mapping_of_weights_downloads_nothing() -> None:
    assert DOWNLOADS not in said(training(after="results = dict(weights=model.state_dict(), loss=total)"))
    assert DOWNLOADS in said(
        training(ready="import torchvision\nother = torchvision.models.resnet18(weights='DEFAULT')")
    )


def test_one_call_may_be_asked_for_its_layers_and_for_its_files() -> None:
    text = said(built("", "torch.hub.load('makers/nets', 'small')"))
    assert LAYERS in text and DOWNLOADS in text


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("create()", False),
        ("create(3)", False),
        ("create(3, True)", True),
        ("create(ready=True)", True),
        ("create(**vars(args))", True),
        ("kinds['small'](ready=True)", True),
        ("functools.partial(create, ready=True)()", True),
    ],
)
@pytest.mark.parametrize(
    "body",
    [
        "    return models.resnet18(weights='DEFAULT' if ready else None)\n",
        "    return models.resnet18(pretrained=ready)\n",
        "    kind = None\n    if ready == True:\n        kind = 'DEFAULT'\n    return models.resnet18(weights=kind)\n",
    ],
)
def test_what_no_call_asks_for_is_not_downloaded(body: str, made: str, told: bool) -> None:
    functions = f"import functools\nfrom torchvision import models\ndef create(rows=2, ready=False):\n{body}"
    functions += "kinds = {'small': create}\n" if "kinds" in made else ""
    assert (DOWNLOADS in said(built(functions, made))) is told


def test_what_a_command_line_may_ask_for_is_downloaded() -> None:
    source = training(
        functions="import click\nfrom torchvision import models\n@click.command()\n@click.option('--ready')\n"
        "def look(ready=False):\n    models.resnet18(pretrained=ready)\n",
        after="look()",
    )
    assert DOWNLOADS in said(source)


@pytest.mark.parametrize(
    ("more", "made"),
    [
        ("", "functools.partial(create, ready=True)()"),
        ("def through(make):\n    return make(ready=True)\n", "through(create)"),
        ("def through(make, **rest):\n    return make(**rest)\n", "through(create, ready=True)"),
        ("kinds = {}\nkinds['small'] = create\n", "kinds['small'](ready=True)"),
    ],
)
def test_a_function_that_is_handed_on_may_be_called_otherwise(more: str, made: str) -> None:
    functions = (
        "import functools\nfrom torchvision import models\ndef create(ready=False):\n"
        f"    return models.resnet18(pretrained=ready)\n{more}"
    )
    assert DOWNLOADS in said(built(functions + "first = create()\n", made))


def test_a_data_set_that_gives_its_name_to_the_loader_is_no_loader():
    again = training().replace(
        "loader = DataLoader(data, batch_size=4, shuffle=True)",
        "loader = datasets.MNIST('data')\nloader = DataLoader(loader, batch_size=4, shuffle=True)",
    )
    again = "from torchvision import datasets\n" + again
    assert ORDER not in said(again)
    assert ORDER in said(again.replace("datasets.MNIST('data')", "eval('data')").replace(", shuffle=True", ""))


IN_MAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tools import report

def main(settings):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(TensorDataset(torch.randn(20, 3), torch.randn(20, 3)), batch_size=4, shuffle=True)
    model = nn.Linear(3, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    {does}
"""


@pytest.mark.parametrize(
    ("does", "name"),
    [
        ("report(loss)", "report()"),
        ("settings.dump('out')", "settings.dump()"),
        ("settings.save('out')", "settings.save()"),
        ("print(settings.dump('out'))", ""),
        ("settings.show()", ""),
        ("model.save('out')", ""),
    ],
)
def test_names_what_a_function_that_trains_runs_whoever_calls_it(does: str, name: str) -> None:
    message = said(IN_MAIN.format(does=does))
    assert f"{name} (line" in message if name else CODE not in message


def test_what_a_function_is_handed_by_the_script_is_known() -> None:
    known = "class Settings:\n    def dump(self, path):\n        pass\n\nmain(Settings())\n"
    assert CODE not in said(IN_MAIN.format(does="settings.dump('out')") + known)
