"""Parts of a prepared model, which the wrapper of Accelerate would hide."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.source import Source

from tests.migrate.rules.scripts import becomes, codes, stays, training
from tests.migrate.rules.verbs import ACCELERATE, migrated, noted, notes, rewritten

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader

loader = DataLoader(data, batch_size=4)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{early}
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    {line}
"""
AFTER = """
import torch
from accel_runtime import Accelerator
from torch import nn
from torch.utils.data import DataLoader

loader = DataLoader(data, batch_size=4)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{early}
accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    accelerator.backward(loss)
    optimizer.step()
    {line}
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("watch(model.fc.weight)", "watch(accelerator.unwrap_model(model).fc.weight)"),
        ("model.temperature = 0.5", "accelerator.unwrap_model(model).temperature = 0.5"),
        ("model.reset_hidden()", "accelerator.unwrap_model(model).reset_hidden()"),
        ("name = model.__class__.__name__", "name = accelerator.unwrap_model(model).__class__.__name__"),
        ("note(type(model).__name__)", "note(type(accelerator.unwrap_model(model)).__name__)"),
        ("ready = isinstance(model, Net)", "ready = isinstance(accelerator.unwrap_model(model), Net)"),
        ("layers = len(model)", "layers = len(accelerator.unwrap_model(model))"),
        ("width = model[0].in_features", "width = accelerator.unwrap_model(model)[0].in_features"),
        (
            "kinds = [type(layer) for layer in model]",
            "kinds = [type(layer) for layer in accelerator.unwrap_model(model)]",
        ),
        ("layers = list(model.cpu())", "layers = list(accelerator.unwrap_model(model).cpu())"),
        ("layer = getattr(model, name)", "layer = getattr(accelerator.unwrap_model(model), name)"),
        ('path = f"best_{model}.pt"', 'path = f"best_{accelerator.unwrap_model(model)}.pt"'),
        ("known = key in model", "known = key in accelerator.unwrap_model(model)"),
        ("text = str(model)", "text = str(accelerator.unwrap_model(model))"),
        ("names = dict(model.named_parameters())", "names = dict(accelerator.unwrap_model(model).named_parameters())"),
    ],
)
def test_is_asked_of_the_model_itself_which_has_a_wrapper_in_accelerate_alone(before: str, after: str) -> None:
    script = SCRIPT.format(early="total = 0", line=before)
    result = AFTER.format(early="total = 0", line=after).replace("accel_runtime", "accelerate")
    rewritten(script, result, ACCELERATE)
    rewritten(script, AFTER.format(early="total = 0", line=before))


@pytest.mark.parametrize(
    "line",
    [
        "model.eval()",
        "model.train()",
        "size = sum(p.numel() for p in model.parameters())",
        "model.training",
        "other.fc",
    ],
)
def test_what_a_wrapper_has_too_stays(line: str) -> None:
    script, result = SCRIPT.format(early="total = 0", line=line), AFTER.format(early="total = 0", line=line)
    rewritten(script, result)
    rewritten(script, result.replace("accel_runtime", "accelerate"), ACCELERATE)


def test_before_prepare_the_model_is_bare() -> None:
    early = "model.fc.reset_parameters()"
    result = migrated(SCRIPT.format(early=early, line="pass"))
    assert early in result[: result.index("accelerator.prepare(")]


NET = """
class Net(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = head
        self.drawn = torch.zeros(3)
        self.scale = nn.ReLU()

    def forward(self, x):
        return self.head(self.body(x))

    def features(self, x):
        return self.scale(self.inner(x))

    def inner(self, x):
        return self.body(x)

    def straight(self, x):
        return self.forward(x)

    def asked(self, x):
        return self(x)

    def start(self, size):
        return next(self.parameters()).new_zeros(size)

"""


def _past_forward(line: str) -> list[str]:
    source = SCRIPT.replace("loader =", NET + "loader =", 1).replace("Net()", "Net(nn.Linear(8, 1))")
    script = source.format(early="total = 0", line=line)
    assert not any("past the model's forward" in note for note in notes(script))
    return [note for note in notes(script, ACCELERATE) if "past the model's forward" in note]


@pytest.mark.parametrize("call", ["body(x)", "head(x)"])
def test_says_for_accelerate_that_layers_run_past_the_forward(call: str) -> None:
    (note,) = _past_forward(f"seen = model.{call}, model.{call}")
    assert f"`{call[:-3]}` runs layers" in note


@pytest.mark.parametrize(
    "read", ["body", "body.weight", "drawn", "scale(x)", "asked(x)", "start(3)", "named_parameters()"]
)
def test_says_nothing_where_no_layer_runs_past_the_forward(read: str) -> None:
    assert not _past_forward(f"seen = model.{read}")


@pytest.mark.parametrize(
    "early",
    [
        "for p in model[0].parameters():\n    p.requires_grad = False",
        "for layer in model:\n    nn.init.zeros_(layer.bias)",
        "model[0].register_forward_hook(watch)",
        "model.head = nn.Linear(2, 2)",
        "nn.init.zeros_(model[0].weight)",
    ],
)
def test_what_changes_the_model_stays_before_prepare(early: str) -> None:
    result = migrated(SCRIPT.format(early=early, line="pass"))
    assert early in result[: result.index("accelerator.prepare(")]


SEARCHES = """
class Searcher(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * model.in_features
"""


def test_an_object_that_is_built_after_prepare_asks_the_model_itself():
    source = training(functions=SEARCHES, after="searcher = Searcher(model)\nwidth = searcher(x)")
    becomes(source, "return self.inner(x) * accelerator.unwrap_model(model).in_features", ACCELERATE)
    stays(source, "return self.inner(x) * model.in_features")


def _by_hand(line: str, early: str = "average = copy.deepcopy(model)") -> list[str]:
    source = "import copy\n" + SCRIPT.format(early=early, line=line)
    said = [note for note in notes(source) if "weights are read by hand" in note]
    assert len(said) == sum("part of every weight" in note for note in notes(source, ACCELERATE))
    return said


@pytest.mark.parametrize(
    "line",
    [
        "seen = model.fc.weight.detach().cpu().numpy()",
        "first = model[0].bias\n    seen = first.tolist()",
        "seen = next(model.parameters()).sum().item()",
        "seen = {name: weight.data.clone().cpu().numpy() for name, weight in model.named_parameters()}",
        "for number, weight in enumerate(model.parameters()):\n        show(weight.norm().item())",
        "writer.add_histogram('head', model.fc.weight, 3)",
        "seen = [row.item() for row in model.fc.weight[0]]",
        "seen = {name: float(weight.norm()) for name, weight in model.named_parameters()}",
        "for kept, new in zip(average.parameters(), model.parameters()):\n        kept.data.lerp_(new.data, 0.1)",
    ],
)
def test_says_once_that_weights_taken_by_hand_may_be_sharded(line: str) -> None:
    (note,) = _by_hand(f"{line}\n    {line}")
    length = line.count("\n") + 1
    first = 15 if "zip" in line else 14 + length
    assert f"(lines {first}, {first + length}): under --strategy fsdp they are gathered there" in note


def test_weights_of_models_that_are_handed_over_in_a_list() -> None:
    helper = "def norms(models):\n    for each in models:\n"
    helper += "        for weight in each.parameters():\n            show(weight.item())\n"
    for handed, count in (("[model]", 1), ("[average]", 0), ("[model, average]", 0)):
        early = "average = copy.deepcopy(model)"
        source = "import copy\n" + helper + SCRIPT.format(early=early, line=f"norms({handed})")
        assert sum("weights are read by hand" in note for note in notes(source)) == count


@pytest.mark.parametrize(
    ("early", "line"),
    [
        ("model.head = nn.Linear(2, model.fc.weight.tolist()[0])", "pass"),  # before prepare, where weights are whole
        ("total = 0", "seen = loss.item(), y.cpu().numpy(), other.fc.weight.tolist()"),
        ("total = 0", "size = sum(weight.numel() for weight in model.parameters())"),
        (
            "total = 0",
            "for weight in model.parameters():\n        weight.data.clamp_(-1, 1)\n    seen = weight_of.item()",
        ),
        ("total = 0", "for part in model.parameters():\n        part\n    for part in parts:\n        part.item()"),
        ("total = 0", "seen = [weight.grad.norm().item() for weight in model.parameters()]"),  # AM302 says it
    ],
)
def test_says_nothing_of_weights_where_none_is_taken_by_hand(early: str, line: str) -> None:
    assert not _by_hand(line, early)


@pytest.mark.parametrize("graph", ["True", "graph"])
def test_says_once_that_fsdp_has_no_gradients_of_gradients(graph: str) -> None:
    call = f"slope = torch.autograd.grad(model(x).sum(), x, create_graph={graph})"
    source = SCRIPT.format(early="total = 0", line=f"{call}\n    {call}")
    assert sum("gradient of this gradient" in note for note in notes(source)) == 1
    assert not any(
        "gradient of this" in note for note in notes(source.replace(f"create_graph={graph}", "retain_graph=True"))
    )
    assert not any("gradient of this" in note for note in notes(source.replace(f"={graph}", "=False")))


HELPERS = """import torch


def show(net):
    print(net.fc.weight.tolist())


class Watch:
    def __init__(self, net):
        self.net = net

    def show(self):
        for weight in self.net.parameters():
            print(weight.sum().item())


def slope(net, x):
    return torch.autograd.grad(net(x).sum(), x, create_graph=True)
"""


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("helpers.show(model)", "(line 5 of helpers.py)"),
        ("watch = helpers.Watch(model)\n    watch.show()", "(line 14 of helpers.py)"),
        ("slopes = helpers.slope(model, x)", "(create_graph, line 18 of helpers.py)"),
    ],
)
def test_names_the_line_of_another_file(line: str, place: str) -> None:
    text = SCRIPT.format(early="total = 0", line=line)
    files = {"train.py": f"import helpers\n{text}", "helpers.py": HELPERS}
    result, _ = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()])
    assert sum(place in note.message for note in result.notes if note.code == "AM105") == 1


TWO = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
class Reader(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.size, self.words, self.mix = 8, words, nn.Linear(8, 8)
    def forward(self, x):
        return self.mix(self.words(x))
class Writer(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.words, self.mix = words, nn.Linear(8, 8)
    def forward(self, x):
        return self.mix(x) @ self.words.weight.t()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(torch.randint(0, 20, (32, 5)), torch.randint(0, 20, (32, 5))), batch_size=8)
{built}
reader, writer = reader.to(device), writer.to(device)
optimizer = torch.optim.SGD([*reader.parameters(), *writer.parameters()], lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(writer(reader(x)).flatten(0, 1), y.flatten())
    loss.backward()
    optimizer.step()
"""
APART = "reader, writer = Reader(nn.Embedding(20, 8)), Writer(nn.Embedding(20, 8))"


@pytest.mark.parametrize(
    "built",
    [
        "words = nn.Embedding(20, 8)\nreader = Reader(words)\nwriter = Writer(words=words)",
        "reader = Reader(nn.Embedding(20, 8))\nwriter = Writer(reader.words)",
        f"{APART}\nwriter.words.weight = reader.words.weight",
        f"{APART}\nwriter.mix = reader.mix",
        "def build():\n    words = nn.Embedding(20, 8)\n    return Reader(words), Writer(words)\nreader, writer = build()",
    ],
)
def test_says_that_two_models_share_a_layer(built: str):
    message = noted(TWO.format(built=built), "AM105")
    assert "reader and writer share this layer" in message and "the run stops at prepare()" in message


WARMED = (
    "def warmed(net):\n    net.train()\n    return net\n"
    "reader = Reader(nn.Embedding(20, 8))\nwriter = Writer(nn.Embedding(20, 8))\n"
    "reader = warmed(reader)\nwriter = warmed(writer)"
)


@pytest.mark.parametrize("built", [APART, f"{APART}\nwriter.size = reader.size", WARMED])
def test_says_nothing_of_models_that_share_no_layer(built: str):
    assert "AM105" not in codes(TWO.format(built=built))
