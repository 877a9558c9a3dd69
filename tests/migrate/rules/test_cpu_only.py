"""AM101: a script that knows of no device stays on the CPU, where something of it would break elsewhere."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.settings import DEFAULTS
from accel_migrate.source import Source

from tests.migrate.rules.scripts import training
from tests.migrate.rules.verbs import migrated, noted, notes, unchanged

SCRIPT = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 1)
            self.start = torch.zeros(1)
        def forward(self, x):
            {forward}
            return self.fc(x)

    {loader}
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        {inside}
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    {after}
    """
PARTS = {
    "forward": "",
    "loader": "loader = torch.utils.data.DataLoader(data(), batch_size=4)",
    "inside": "",
    "after": "",
}


def script(**parts: str) -> str:
    return SCRIPT.format(**PARTS | parts)


def test_batches_of_a_loader_alone_may_go_anywhere():
    assert "accelerator = Accelerator()\n" in migrated(script())


@pytest.mark.parametrize(
    "parts",
    [
        {"inside": "noise = torch.randn(4, 2)"},
        {"forward": "h = torch.zeros(len(x), 2)"},
        {"inside": "x = x.type(torch.FloatTensor)"},
        {"forward": "x = x.type(torch.FloatTensor)"},
        {"after": "show(net(x).detach().numpy())"},
        {"after": "net = Net()"},
        {"loader": "loader = [(torch.ones(4, 2), torch.ones(4, 1))]"},
    ],
)
def test_what_lies_on_the_cpu_keeps_the_model_there(parts: dict[str, str]):
    assert "accelerator = Accelerator(cpu=True)\n" in migrated(script(**parts))
    assert "cpu=True keeps the model there" in noted(script(**parts), "AM101")


@pytest.mark.parametrize("inside", ["x = x.cuda()", "noise = torch.randn(4, 2, device=x.device)"])
def test_a_script_that_speaks_of_devices_chooses_itself(inside: str):
    assert "cpu=True" not in migrated(script(inside=inside))


def test_a_look_into_the_loader_is_no_start_of_the_training():
    early = "loader = torch.utils.data.DataLoader(data(), batch_size=4)\n    look = iter(loader)\n    show(next(look))"
    assert "net, optimizer, loader = accelerator.prepare(net, optimizer, loader)" in migrated(script(loader=early))


def test_a_device_that_a_function_puts_among_the_options_is_a_device():
    text = migrated("""
    import argparse, torch
    from torch import nn

    def wishes():
        known = argparse.ArgumentParser().parse_args()
        known.device = "cuda:{}".format(known.gpu) if known.gpu >= 0 else "cpu"
        return known

    chosen = wishes()
    features = torch.randn(8, 2).to(chosen.device)
    net = nn.Linear(2, 1).to(chosen.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(3):
        loss = net(features).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """)
    assert "accelerator = Accelerator(device=chosen.device)\nchosen.device = str(accelerator.device)\n" in text
    assert "net = nn.Linear(2, 1)\n" in text


def test_says_that_a_script_of_the_cpu_goes_to_a_gpu():
    source = SCRIPT.format(**PARTS).replace("self.start = torch.zeros(1)", "")
    assert "Accelerator()" in migrated(source)
    assert "so it trained on the CPU" in noted(source, "AM101")
    there = source.replace("net = Net()", "net = Net().cuda()")
    assert not any("so it trained on the CPU" in each for each in notes(there))


@pytest.mark.parametrize("line", ["# net.cuda()", '"""Not on cuda."""'])
def test_a_comment_about_a_gpu_moves_nothing(line: str):
    source = SCRIPT.format(**PARTS).replace("self.start = torch.zeros(1)", line)
    assert "so it trained on the CPU" in noted(source, "AM101")


@pytest.mark.parametrize(
    "line",
    [
        "torch.cuda.manual_seed_all(3)",
        "if torch.cuda.is_available():\n    torch.cuda.manual_seed(3)",
        'def old():\n    return "cuda:0"',
    ],
)
def test_a_seed_of_the_gpu_and_a_function_that_nothing_calls_move_nothing(line: str):
    source = dedent(SCRIPT.format(**PARTS).replace("self.start = torch.zeros(1)", "")) + line + "\n"
    assert "so it trained on the CPU" in noted(source, "AM101")


IDLE = """
    import torch
    from torch import nn

    def template(model, batches, device="cpu", best=None):
        model = model.to(device)
        for x, y in batches:
            x, y = x.to(device), y.to(device)
            scores = model(x)
            {called}
        model.load_state_dict(best)

    class Runner:
        def __init__(self, model):
            self.model = model.cuda()
        def __call__(self, x):
            return template(self.model, x.cuda())

    xs, ys = torch.randn(40, 2), torch.randn(40, 1)
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(3):
        loss = nn.functional.mse_loss(net(xs), ys)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    {after}
"""


def test_moves_of_functions_that_nothing_runs_are_not_the_scripts():
    assert "Accelerator(cpu=True)" in migrated(IDLE.format(called="", after=""))
    assert "Accelerator(cpu=True)" in migrated(IDLE.format(called="", after="print(getattr(net, 'bias'))"))


@pytest.mark.parametrize("after", ["Runner(net)(xs)", "globals()['temp' + 'late'](net, [])", "print({'a': Runner})"])
def test_moves_of_functions_that_may_run_are(after: str):
    assert "on the CPU" in unchanged(IDLE.format(called="", after=after))


MADE = """
    import functools
    import torch
    from torch import nn
    from sklearn.metrics import accuracy_score
    import numpy as np

    {top}

    loader = torch.utils.data.DataLoader(data(), batch_size=4)
    net = nn.Linear(2, 3)
    {criterion}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        scores = net(x)
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {inside}
"""
PLAIN = {"top": "", "criterion": "criterion = nn.CrossEntropyLoss()", "loss": "criterion(scores, y)", "inside": "pass"}
DECORATED = (
    "def softer(function):\n        def inner(scores, y):\n            return function(scores * torch.ones(3), y)\n"
    "        return inner\n\n    @softer\n    def criterion(scores, y):\n        return nn.functional.cross_entropy(scores, y)"
)
CLASS = (
    "class Weighted:\n        share = torch.ones(3)\n        def __call__(self, scores, y):\n"
    "            return nn.functional.cross_entropy(scores, y, self.share)"
)


@pytest.mark.parametrize(
    "parts",
    [
        {"criterion": "criterion = nn.CrossEntropyLoss(weight=torch.ones(3))"},
        {"top": "counts = torch.ones(3)", "criterion": "criterion = nn.CrossEntropyLoss(counts / counts.sum())"},
        {"criterion": "criterion = functools.partial(nn.functional.cross_entropy, weight=torch.ones(3))"},
        {"top": "centres = torch.randn(3, 3)", "loss": "(scores - centres[y]).pow(2).mean()"},
        {
            "top": "def criterion(scores, y, share=torch.ones(3)):\n        return (scores * share).mean()",
            "criterion": "",
        },
        {"top": DECORATED, "criterion": ""},
        {
            "top": "def small(a):\n        return (a * torch.ones(3)).sum()\n    more = [small]",
            "loss": "sum(f(scores) for f in more)",
        },
        {"top": CLASS, "criterion": "criterion = Weighted()"},
        {"inside": "accuracy_score(y, scores.argmax(1))"},
        {"inside": "seen = [np.asarray(row) for row in scores.detach()]"},
        {"criterion": "criterion = nn.CrossEntropyLoss()\n    sample, _ = next(iter(loader))", "inside": "net(sample)"},
        {"inside": "for x, y in torch.utils.data.DataLoader(data()):\n            net(x)"},
    ],
)
def test_what_is_made_on_the_cpu_and_meets_the_batches_keeps_the_model_there(parts: dict[str, str]):
    assert "Accelerator(cpu=True)" in migrated(MADE.format(**PLAIN | parts))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"top": "sample = torch.ones(3)\n    print(sample.mean())"},
        {"criterion": "criterion = nn.CrossEntropyLoss()\n    sample, _ = next(iter(loader))\n    print(sample.shape)"},
        {"inside": "print(np.mean([loss.item()]), accuracy_score(y.cpu(), scores.argmax(1).cpu()))"},
        {"criterion": "criterion = nn.CrossEntropyLoss(ignore_index=2)"},
    ],
)
def test_what_meets_nothing_does_not(parts: dict[str, str]):
    assert "accelerator = Accelerator()\n" in migrated(MADE.format(**PLAIN | parts))


def test_arrays_that_are_read_once_the_function_that_trains_has_come_back():
    script = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    def fit(net):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        loader = DataLoader(rows, batch_size=4)
        kept = []
        for x, y in loader:
            loss = (net(x) - y).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            kept.append(x)
        return kept

    def show(kept):
        print(kept{read})

    def main():
        kept = fit(nn.Linear(4, 1))
        show(kept)

    main()
    """
    assert "Accelerator(cpu=True)" in migrated(script.format(read="[0].numpy()"))
    assert "Accelerator()" in migrated(script.format(read=""))


@pytest.mark.parametrize(
    "loader",
    [
        "from gone import pairs",
        "from gone import read\n    pairs = read(8)",
        "from gone import read\n    pairs, rest = read(8)",
        "import gone\n    pairs = gone.Data('rows').batches()",
    ],
)
def test_batches_of_a_file_that_nobody_has_read_are_not_said_to_be_the_scripts_own(loader):
    said = notes(script(loader=loader).replace("in loader:", "in pairs:"))
    assert any("trains on `pairs`, which is not visible to the analysis" in message for message in said)
    assert any("if it is a DataLoader, hand its file over as well, or prepare it" in message for message in said)
    assert not any("makes its batches" in message for message in said)


@pytest.mark.parametrize(
    "loader",
    [
        "pairs = [(torch.ones(4, 2), torch.ones(4, 1))]",
        "from gone import read\n    pairs = [(row, row) for row in read(8)]",
    ],
)
def test_batches_that_the_script_lists_are_its_own(loader):
    assert "makes its batches by itself" in noted(script(loader=loader).replace("in loader:", "in pairs:"), "AM101")


def test_names_the_file_where_something_else_needs_the_cpu():
    train = (
        "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\ndef train(net, rows, held):\n"
        "    loader, others = DataLoader(rows), DataLoader(held)\n    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "    for x, y in loader:\n        loss = nn.functional.mse_loss(net(x), y)\n        optimizer.zero_grad()\n"
        "        loss.backward()\n        optimizer.step()\n        kept = x.numpy()\n    return net\n"
    )
    main = (
        "import torch\nfrom torch import nn\nfrom train import train\ndef run():\n    net = nn.Linear(2, 1)\n"
        "    net = train(net, rows, held)\n    torch.save(net, 'n.pt')\nrun()\n"
    )
    files = {"main.py": main, "train.py": train}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
    assert b"Accelerator(cpu=True)" in results[0].after
    (told,) = [note.message for note in results[0].notes if note.code == "AM101"]
    assert "needs the CPU in train.py:12" in told


def test_a_batch_that_stays_on_the_cpu_is_read_there_as_it_was():
    source = training(inside="seen = y.detach().numpy()").replace(".to(device)", "")
    after = migrated(source)
    assert "Accelerator(cpu=True)" in after
    assert "seen = y.detach().numpy()" in after


@pytest.mark.parametrize(
    "chosen",
    [
        "kind = torch.cuda.FloatTensor\nif torch.cuda.is_available() is False:\n    kind = torch.FloatTensor",
        "if torch.cuda.is_available():\n    kind = torch.cuda.FloatTensor\nelse:\n    kind = torch.FloatTensor",
    ],
)
def test_types_of_tensors_are_a_device(chosen: str) -> None:
    """`.type(torch.cuda.FloatTensor)` moves, though nothing else of the script names a GPU."""
    text = dedent(script(inside="y = y.type(kind)", after="print(torch.ones(1))"))
    text = text.replace("net = Net()", f"{chosen}\nnet = Net().type(kind)")
    assert "Accelerator(cpu=not torch.cuda.is_available())" in migrated(text)


def test_a_function_of_autograd_in_another_file_is_no_library() -> None:
    text = dedent(script(forward="return Reversed.apply(self.fc(x), 1.0)")).replace(
        "self.start = torch.zeros(1)", "pass"
    )
    other = "import torch\nclass Reversed(torch.autograd.Function):\n    pass\n"
    files = {"train.py": f"from flips import Reversed\n{text.lstrip()}", "flips.py": other}
    done = migrate([Source.from_bytes(Path(name), each.encode()) for name, each in files.items()], DEFAULTS)
    assert not any("needs the CPU" in note.message for note in done[0].notes)
