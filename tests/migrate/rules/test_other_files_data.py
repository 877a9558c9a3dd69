"""AM803 and AM812: what is said of data and seeds that other files of the project set."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.source import Source

TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import CIFAR10
{brought}

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
{loader}
net = nn.Sequential(nn.Flatten(), {layer}nn.Linear(3072, 10)).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
"""
VIEWS = """
from torchvision import transforms

train_view = transforms.Compose([transforms.RandomResizedCrop(32), transforms.ToTensor()])
VIEWS = {"train": train_view}


class Views:
    def __init__(self, size):
        self.random = transforms.RandomCrop(size)
        self.plain = transforms.Compose([transforms.Resize(size), transforms.ToTensor()])
"""


def said(code: str, others: dict[str, str], brought: str, loader: str, layer: str = "") -> str:
    texts = {"train.py": TRAIN.format(brought=brought, loader=loader, layer=layer), **others}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in texts.items()])
    result = next(each for each in results if each.path.name == "train.py")
    assert b"accelerator.backward(loss)" in result.after, result.reason
    return " ".join(note.message for note in result.notes if note.code == code)


@pytest.mark.parametrize(
    ("brought", "view", "line"),
    [
        ("import views", "views.train_view", 4),
        ("from views import train_view", "train_view", 4),
        ("from views import train_view as view\nused = view", "used", 4),
        ("import views", "views.VIEWS['train']", 4),
        ("from views import Views", "Views(32).random", 10),
    ],
)
def test_random_transforms_that_another_file_composes(brought: str, view: str, line: int) -> None:
    loader = f"loader = DataLoader(CIFAR10('data', transform={view}), batch_size=8, shuffle=True, num_workers=2)"
    assert f"for augmentation (views.py:{line})" in said("AM803", {"views.py": VIEWS}, brought, loader)


def test_random_transforms_that_only_another_script_hands_over() -> None:
    shared = """
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import CIFAR10


def plain():
    return transforms.ToTensor()


def cropped():
    return transforms.Compose([transforms.RandomCrop(32), transforms.ToTensor()])


def load(view):
    return DataLoader(CIFAR10("data", transform=view), batch_size=8, shuffle=True)
"""
    other = "from shared import cropped, load\n\nfor x, _ in load(cropped()):\n    print(x.mean())\n"
    files = {"shared.py": shared, "other.py": other}
    assert not said("AM803", files, "from shared import load, plain", "loader = load(plain())")
    assert "(shared.py:12)" in said("AM803", files, "from shared import cropped, load", "loader = load(cropped())")


def test_random_transforms_of_a_loader_that_next_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand = "batches = iter(loader)\nfor step in range(9):\n    x, y = next(batches)\n"
    monkeypatch.setitem(globals(), "TRAIN", TRAIN.replace("for x, y in loader:\n", by_hand))
    loader = "loader = DataLoader(CIFAR10('data', transform=train_view), batch_size=8, shuffle=True)"
    told = said("AM803", {"views.py": VIEWS}, "from views import train_view", loader)
    assert "for augmentation (views.py:4)" in told


def test_a_transform_beside_a_random_one() -> None:
    loader = "loader = DataLoader(CIFAR10('data', transform=Views(32).plain), batch_size=8, shuffle=True)"
    assert not said("AM803", {"views.py": VIEWS}, "from views import Views", loader)


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ("if __name__ == '__main__':\n    torch.manual_seed(7)\n", "accel launch seeds"),
        ("def check():\n    torch.manual_seed(7)\n\n\nif __name__ == '__main__':\n    check()\n", "accel launch seeds"),
        ("torch.manual_seed(7)\n", "rates.py:7"),
    ],
)
def test_a_seed_of_a_file_that_is_only_imported(start: str, told: str) -> None:
    rates = "import torch\n\ndef rate():\n    return 1\n\n\n" + start
    loader = "loader = DataLoader(CIFAR10('data'), batch_size=8, shuffle=True)"
    assert told in said("AM803", {"rates.py": rates}, "from rates import rate", loader, "nn.Dropout(0.5), ")


SPLIT = """
import torch
from torch.utils.data import DataLoader, TensorDataset, random_split
from away import stream

def both(size=8):
    first, second = random_split(TensorDataset(torch.randn(48, 5), torch.randn(48)), [40, 8])
    held = DataLoader(stream(), size)
    return DataLoader(first, size), held
"""


def test_the_order_of_a_split() -> None:
    one = said("AM812", {"loaders.py": SPLIT}, "from loaders import both", "loader, _ = both()")
    assert "in which order samples come from" not in one
    other = said("AM812", {"loaders.py": SPLIT}, "from loaders import both", "_, loader = both()")
    assert "what stream() (loaders.py:8) does, which was not analysed" in other


def test_the_order_of_what_is_cut_out_of_data() -> None:
    lines = "rows = whole().shuffled()\npart = rows[:40]\nloader = DataLoader(part, batch_size=8)"
    assert "in which order samples come from" not in said("AM812", {}, "from away import whole", lines)
    streamed = lines.replace("rows[:40]", "rows[0]")
    assert "in which order samples come from" in said("AM812", {}, "from away import whole", streamed)


LOADED = """
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(48, 5), torch.randn(48)), batch_size=8)
"""


@pytest.mark.parametrize("brought", ["from loaders import loader", "from passed_on import loader"])
def test_the_order_of_a_loader_that_another_file_builds(brought: str) -> None:
    files = {"loaders.py": LOADED, "passed_on.py": "from loaders import loader\n"}
    assert "in which order samples come from" not in said("AM812", files, brought, "")
    files["loaders.py"] = "from away import stream\n" + LOADED.replace("TensorDataset(", "stream(")
    assert "what stream() (loaders.py:6) does" in said("AM812", files, brought, "")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("{'num_workers': 1} if torch.cuda.is_available() else {}", False),
        ("{'num_workers': 1} if torch.cuda.is_available() else read()", True),
        ("read()", True),
    ],
)
def test_options_of_a_loader_that_are_spelled_out(options: str, told: bool) -> None:
    loader = f"options = {options}\nloader = DataLoader(CIFAR10('data'), batch_size=8, shuffle=True, **options)"
    assert ("how long the batches are" in said("AM812", {}, "from away import read", loader)) == told


TRIED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 1))

    def forward(self, x):
        return self.layers(x)

def tried():
    net = Small()
    loader = DataLoader(TensorDataset(torch.randn(48, 5), torch.randn(48, 1)), batch_size=8, shuffle=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    tried()
"""
SEEDED = "import torch\nfrom small import Small\ntorch.manual_seed(3)\nprint(Small().cuda())\n"


GUARDED = (
    TRIED[: TRIED.index("def tried")]
    + 'if __name__ == "__main__":\n'
    + TRIED[TRIED.index("    net = ") : TRIED.index("if __name__")]
)


def notes_of_small(small: str, later: str) -> str:
    sources = [Source.from_bytes(Path(n), text.encode()) for n, text in {"small.py": small, "later.py": later}.items()]
    return " ".join(note.message for note in migrate(sources)[0].notes)


@pytest.mark.parametrize("small", [TRIED, GUARDED])
def test_a_script_that_imports_another_says_nothing_of_it(small: str) -> None:
    notes = notes_of_small(small, SEEDED)
    assert "accel launch seeds all processes alike" in notes and "later.py" not in notes
    assert "the script moves nothing, so it trained on the CPU" in notes


@pytest.mark.parametrize("run", ["from small import tried\ntried()\n", "import small\nsmall.tried()\n"])
def test_a_script_that_runs_the_training_of_another(run: str) -> None:
    assert "(later.py:3)" in notes_of_small(TRIED, SEEDED.replace(".cuda()", "") + run)


def test_what_a_test_calls_is_no_part_of_the_training() -> None:
    test = (
        "import pytest\nfrom small import tried\n\n@pytest.mark.parametrize('n', [1])\ndef test_it(n):\n    tried()\n"
    )
    assert "pytest" not in notes_of_small(TRIED, test)
