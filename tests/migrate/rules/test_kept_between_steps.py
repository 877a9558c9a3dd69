"""AM811: what is kept from step to step and trained by is said to be each process's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.source import Source

from tests.migrate.rules.scripts import codes, training
from tests.migrate.rules.verbs import noted

MODULE = """
class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 2)
        {keeps}
    def forward(self, x):
        z = self.body(x)
{does}
        return z
"""


def module(keeps: str, does: str, name: str = "Net") -> str:
    lines = "\n".join(f"        {line}" for line in does.splitlines())
    return MODULE.format(name=name, keeps=keeps, does=lines)


def built(source: str, loss: str = "model(x).pow(2).mean()") -> str:
    return training(functions=source, loss=loss).replace("model = nn.Linear(3, 2)", "model = Net()")


@pytest.mark.parametrize("run", ["nn.Sequential(Net(), nn.ReLU())", "nn.ModuleList([Net()])[0]"])
def test_names_weights_that_a_layer_of_a_container_sets_from_its_first_batch(run: str):
    does = "if self.begun.item() == 0:\n    self.shift.data.copy_(-z.mean(0))\nz = z + self.shift"
    keeps = "self.shift, self.begun = nn.Parameter(torch.zeros(2)), torch.tensor(0)"
    source = built(module(keeps, does)).replace("model = Net()", f"model = {run}")
    assert "`self.shift`" in noted(source, "AM811")


@pytest.mark.parametrize(
    "update",
    [
        "queue = torch.cat([queue, model(x).detach()])[-8:]",
        "queue[:4] = model(x).detach()",
        "queue.mul_(0.9).add_(model(x).detach().mean())",
        "queue.data.copy_(queue * 0.9 + y.float().mean())",
    ],
)
def test_names_a_queue_of_the_loop(update: str):
    loss = "criterion(model(x), y) + (model(x) @ queue.t()).mean()"
    message = noted(training(ready="queue = torch.zeros(8, 2)", loss=loss, inside=update), "AM811")
    assert "`queue`" in message and "each has its own" in message


def test_names_a_list_that_is_drawn_from():
    source = training(ready="pool = []", loss="criterion(model(pool[0] if pool else x), y)", inside="pool.append(x)")
    assert "`pool`" in noted(source, "AM811")


def test_names_what_an_object_of_the_project_keeps():
    pool = (
        "class Pool:\n    def __init__(self):\n        self.kept = []\n"
        "    def query(self, x):\n        self.kept.append(x)\n        return self.kept[0]\n"
    )
    source = training(functions=pool, ready="pool = Pool()", loss="criterion(model(pool.query(x)), y)")
    assert "`self.kept`" in noted(source, "AM811")
    again = source.replace("pool.query(x)", "x").replace("        loss =", "        x = pool.query(x)\n        loss =")
    assert "`self.kept`" in noted(again, "AM811")


def test_names_averages_that_a_forward_makes():
    does = "self.mean = 0.9 * self.mean + 0.1 * z.detach().mean(0)\nz = z - self.mean"
    assert "`self.mean`" in noted(built(module("self.mean = torch.zeros(2)", does)), "AM811")


def test_a_buffer_of_the_model_is_the_main_process_s():
    keeps = "self.register_buffer('bank', torch.zeros(8, 2))"
    source = built(
        module(keeps, "z = z @ self.bank.t()\nself._put(z)") + "    def _put(self, z):\n        self.bank[:4] = z\n"
    )
    message = noted(source, "AM811")
    assert "`self.bank`" in message and "the buffers of the main process" in message


def test_a_codebook_that_comes_of_other_averages():
    keeps = "self.book = nn.Embedding(4, 2); self.register_buffer('sums', torch.zeros(4, 2))"
    does = "z = z + self.book.weight.mean()\nself.sums.data.mul_(0.9).add_(z.mean())\nself.book.weight.data.copy_(self.sums)"
    assert "`self.book`" in noted(built(module(keeps, does)), "AM811")


def test_a_part_of_the_model_that_keeps_is_found():
    part = module("self.seen = torch.zeros(2)", "self.seen += z.sum(0)\nz = z / self.seen", "Part")
    whole = "\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.part = Part()\n"
    whole += "    def forward(self, x):\n        return self.part(x)\n"
    assert "`self.seen`" in noted(built(part + whole), "AM811")


@pytest.mark.parametrize(
    ("ready", "inside"),
    [
        ("losses = []", "losses.append(loss.item())\nprint(sum(losses) / len(losses))"),
        ("", "total += loss.item()"),
        (
            "teacher = copy.deepcopy(model)",
            "for p, q in zip(teacher.parameters(), model.parameters()):\n    p.data.mul_(0.9).add_(q.data)",
        ),
        ("seen = 0", "seen += x.size(0)"),
    ],
)
def test_figures_counts_and_copies_of_weights_are_not_named(ready: str, inside: str):
    assert "AM811" not in codes(training(ready=ready, inside=inside))


def test_a_loss_that_is_added_up_within_a_step_is_not_named():
    assert "AM811" not in codes(training(loss="0\n        loss += criterion(model(x), y)"))


def test_a_count_of_steps_in_the_loss_is_not_named():
    assert "AM811" not in codes(
        training(ready="steps = 0", loss="criterion(model(x), y) * min(1, steps)", inside="steps += 1")
    )
    does = "self.steps += 1\nz = z * min(1, self.steps)"
    assert "AM811" not in codes(built(module("self.steps = 0", does)))


def test_what_a_step_sets_anew_is_not_named():
    does = "self.last = z\nz = self.last + 1"
    assert "AM811" not in codes(built(module("self.last = None", does)))


def test_what_every_process_makes_alike_is_not_named():
    source = training(
        ready="hidden = torch.zeros(4, 2)", loss="(model(x) + hidden).mean()", inside="hidden = hidden + loss"
    )
    assert "`hidden`" in noted(source, "AM811")
    alike = source.replace("for i, (x, y) in enumerate(loader):", "for i in range(9):\n        x, y = data[i]")
    assert "AM811" not in codes("import torch\ntorch.manual_seed(1)\n" + alike)


def test_labels_that_a_function_makes_of_batches_are_named():
    labels = (
        "def relabel(old):\n    seen = np.zeros(40)\n    for x, y in loader:\n        seen[:4] = model(x).argmax(1)\n"
        "    return old * 0 + torch.tensor(seen)\n"
    )
    loss = "criterion(model(x), labels[y])"
    source = training(functions=labels, ready="labels = torch.zeros(40)", loss=loss, inside="labels = relabel(labels)")
    assert "`labels`" in noted(source, "AM811")


def test_a_bank_that_a_function_of_autograd_changes():
    bank = (
        "class Bank(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x, memory):\n"
        "        ctx.save_for_backward(x, memory)\n        return x @ memory.t()\n"
        "    @staticmethod\n    def backward(ctx, grad):\n        x, memory = ctx.saved_tensors\n"
        "        {}\n        return grad @ memory, None\n"
    )
    source = module("self.register_buffer('memory', torch.zeros(8, 2))", "z = Bank.apply(z, self.memory)")
    assert "`self.memory`" in noted(built(bank.format("memory.index_copy_(0, x, x)") + source), "AM811")
    assert "AM811" not in codes(built(bank.format("seen = memory.sum()") + source))


@pytest.mark.parametrize("runs", ["self(x)", "self.forward(x)"])
def test_names_what_a_forward_keeps_that_another_method_runs(runs: str):
    book = module(
        "self.register_buffer('mean', torch.zeros(2))",
        "self.mean.mul_(0.9).add_(z.detach().mean(0))\nz = z + self.mean",
    )
    book += f"    def cost(self, x):\n        return {runs}.pow(2).mean()\n"
    assert "`self.mean`" in noted(built(book, loss="model.cost(x)"), "AM811")


def test_a_tensor_that_is_filled_as_it_is_made_is_nothing_that_the_library_keeps():
    source = training(loss="torch.relu(criterion(model(x), y))", inside="last = torch.empty(1).fill_(y.float().mean())")
    assert "AM811" not in codes(source)


ROUNDS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
loader = DataLoader(TensorDataset(torch.randn(40, 3)), batch_size=4, shuffle=True)
model = nn.Linear(3, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in loader:
    seen = torch.zeros(3, device=device)
    for _ in range(2):
        x = x.to(device)
        seen = seen + x.mean(0)
        loss = (model(x) - seen).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_what_rounds_over_one_batch_go_on_with_is_not_kept():
    assert "AM811" not in codes(ROUNDS)
    assert "`seen`" in noted(ROUNDS.replace("    seen =", "    seen = seen if 'seen' in globals() else"), "AM811")


SUMS = (
    "class Parts:\n    def {begins}(self):\n        self.area = 0.0\n"
    "    def __call__(self, out, y):\n        {first}\n        for part in (out, -out):\n"
    "            self.area += (part - y).pow(2).mean()\n        return self.area\n"
)


@pytest.mark.parametrize("first", ["self.begin()", "self.area = 0.0"])
def test_what_a_step_begins_anew_is_not_kept(first: str):
    source = training(
        functions=SUMS.format(begins="begin", first=first), ready="parts = Parts()", loss="parts(model(x), y.float())"
    )
    assert "AM811" not in codes(source)


@pytest.mark.parametrize("first", ["pass", "if len(out) == 1: self.area = 0.0"])
def test_what_a_step_may_go_on_with_is_kept(first: str):
    source = training(
        functions=SUMS.format(begins="__init__", first=first),
        ready="parts = Parts()",
        loss="parts(model(x), y.float())",
    )
    assert "`self.area`" in noted(source, "AM811")


def test_what_only_another_script_keeps_is_not_named():
    """Both scripts run one model, so what one hands it may come to the forward that the other trains through."""
    shared = "from torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    shared += "        self.body = nn.Linear(3, 2)\n    def forward(self, x):\n        return self.body(x)\n"
    store = "class Store:\n    def __init__(self):\n        self.kept = []\n    def put(self, x):\n"
    store += "        self.kept.append(x)\n    def next(self):\n        return self.kept.pop()\n"
    plain = training(functions="from net import Net").replace("nn.Linear(3, 2)", "Net()")
    keeping = plain.replace("from net import Net", "from net import Net\nfrom store import Store\nstore = Store()")
    keeping = keeping.replace("        loss =", "        store.put(x)\n        loss =").replace(
        "model(x)", "model.forward(store.next())"
    )
    files = {"net": shared, "store": store, "plain": plain, "keeping": keeping}
    results = migrate([Source.from_bytes(Path(f"{name}.py"), text.encode()) for name, text in files.items()])
    told = {r.path.stem: [n.message for n in r.notes if n.code == "AM811"] for r in results}
    assert not told["plain"]
    assert any("`self.kept` (store.py:5)" in message for message in told["keeping"])


SAMPLES = """
class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.rows, self.n = list("abca"), 0
        self.kept = {holds}
    def __len__(self):
        return 4
    def begin(self):
        self.n = 0
    def __getitem__(self, i):
        word = self.rows[i]
        {does}
        return torch.full((3,), float({gives})), 1
"""


def samples(does: str, gives: str, holds: str = "{}") -> str:
    rows = SAMPLES.format(holds=holds, does=does.replace("\n", "\n        "), gives=gives)
    return training(functions=rows, ready="loader = DataLoader(Rows(), batch_size=2)")


@pytest.mark.parametrize(
    ("does", "gives", "holds", "name"),
    [
        ("if word not in self.kept:\n    self.kept[word] = len(self.kept)", "self.kept[word]", "{}", "kept"),
        ("self.kept.setdefault(word, len(self.kept))\nk = self.kept[word]", "k", "{}", "kept"),
        ("if word not in self.kept:\n    self.kept.append(word)", "self.kept.index(word)", "[]", "kept"),
        ("self.kept[word] += 1", "1 / self.kept[word]", "collections.Counter()", "kept"),
        ("self.kept[word] = self.kept.get(word, 0) + 1", "self.kept[word]", "{}", "kept"),
        ("self.n += 1", "self.n", "{}", "n"),
        ("self.n = 0.9 * self.n + i", "i - self.n", "{}", "n"),
        ("self.kept[word] = self.n\nself.n += 1", "self.kept[word]", "{}", "n"),
        ("self.n += 1\nif self.n == 4:\n    self.n = 0", "ord(self.rows[self.n])", "{}", "n"),
        ("self.n += 1\nif self.n == 4:\n    self.begin()", "ord(self.rows[self.n])", "{}", "n"),
    ],
)
def test_names_what_a_data_set_numbers_or_counts_as_its_samples_come(does: str, gives: str, holds: str, name: str):
    source = samples(does, gives, holds)
    lines = source.lstrip("\n").split("\n")
    message = noted(source, "AM811")
    assert f"`self.{name}` goes on from what samples before have put in" in message
    (result,) = migrate([Source.from_bytes(Path("train.py"), source.lstrip("\n").encode())])
    (line,) = [note.line for note in result.notes if note.code == "AM811"]
    assert f"self.{name}" in lines[line - 1]


@pytest.mark.parametrize(
    ("does", "gives"),
    [
        ("if i not in self.kept:\n    self.kept[i] = ord(word)", "self.kept[i]"),
        ("self.kept.setdefault(i, ord(word))", "self.kept[i]"),
        ("if len(self.kept) < 3:\n    self.kept[word] = ord(word)", "self.kept.get(word, ord(word))"),
        ("if word not in self.kept:\n    self.kept[word] = len(self.kept)", "i"),
        ("self.n += 1", "i"),
        ("self.n = 0\nself.n += i", "self.n"),
        ("self.begin()\nself.n += i", "self.n"),
        ("self.rows[i] = ord(str(self.rows[i])[0])", "self.rows[i]"),
        ("self.rows = list(self.rows)", "ord(self.rows[i])"),
        ("seen = []\nseen.append(i)", "seen[0]"),
        ("store = Store()\nstore.put(i)", "store.kept[0]"),
    ],
)
def test_what_is_found_again_by_its_sample_alone_or_is_not_given_is_not_named(does: str, gives: str):
    store = "class Store:\n    def __init__(self):\n        self.kept = []\n    def put(self, x):\n        self.kept.append(x)\n"
    assert "AM811" not in codes(store + samples(does, gives))


def test_names_what_an_object_of_the_data_set_numbers():
    book = "class Book:\n    def __init__(self):\n        self.of = {}\n    def number(self, word):\n"
    book += "        if word not in self.of:\n            self.of[word] = len(self.of)\n        return self.of[word]\n"
    source = samples("k = self.kept.number(word)", "k", "Book()")
    assert "`self.of`" in noted(source.replace("class Rows", book + "class Rows"), "AM811")


def test_what_a_data_set_numbers_before_it_gives_samples_is_not_named():
    source = samples("", "self.kept[word]").replace("        \n", "\n")
    filled = source.replace(
        "    def __len__", "        for w in self.rows:\n            self.kept[w] = len(self.kept)\n    def __len__"
    )
    assert "AM811" not in codes(filled)


def test_names_what_a_data_set_counts_that_is_only_evaluated() -> None:
    rows = SAMPLES.format(holds="{}", does="self.n += 1", gives="self.n")
    evaluated = """
        with torch.no_grad():
            hits = 0
            for x, y in test_loader:
                x, y = x.to(device), y.to(device)
                hits += (model(x).argmax(1) == y).sum().item()
        print(hits)
        """
    source = training(functions=rows, ready="test_loader = DataLoader(Rows(), batch_size=2)", after=evaluated)
    assert "`self.n` goes on from" in noted(source, "AM811")
    sharing = "hits += (model(x).argmax(1) == y).sum().item()"
    whole = source.replace(sharing, f"{sharing}; show(model, x)")  # every process sees all of the samples
    assert "AM811" not in codes(whole)


@pytest.mark.parametrize(
    ("number", "named"),
    [
        ("words.setdefault(row, len(words))", "words"),
        ("times.update([row]) or times[row]", "times"),
        ("words.update({row: float(row)}) or words[row]", ""),
        ("float(row)", ""),
    ],
)
@pytest.mark.parametrize("collate", ["collate", "Collate()"])
def test_names_what_a_collate_function_numbers(number: str, named: str, collate: str) -> None:
    functions = f"""
        import collections
        words, times = {{}}, collections.Counter()
        def collate(rows):
            return torch.tensor([{number} for row, _ in rows]), torch.tensor([y for _, y in rows])
        class Collate:
            def __call__(self, rows):
                return torch.tensor([{number} for row, _ in rows]), torch.tensor([y for _, y in rows])
    """
    source = training(functions=functions, ready=f"loader = DataLoader(data, batch_size=2, collate_fn={collate})")
    assert (f"`{named}` goes on from" in noted(source, "AM811")) if named else "AM811" not in codes(source)
