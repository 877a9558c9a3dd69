"""Moves that go, down to the statement that is left with nothing to do, and those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.settings import DEFAULTS
from accel_migrate.source import Source

from tests.migrate.rules.scripts import training
from tests.migrate.rules.verbs import migrated, rewritten

BEFORE = """
import torch
from torch import nn
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(data, batch_size=4)
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for batch in loader:
    {lines}
    loss = model(batch["x"].to(device)).sum()
    loss.backward()
    optimizer.step()
"""
AFTER = """
import torch
from accel_runtime import Accelerator
from torch import nn
from torch.utils.data import DataLoader

accelerator = Accelerator(){kept}
loader = DataLoader(data, batch_size=4)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

for batch in loader:{lines}
    loss = model(batch["x"]).sum()
    accelerator.backward(loss)
    optimizer.step()
"""


def becomes(before: str, after: str, kept: bool = False) -> None:
    lines = "\n    " + after if after else ""
    still = "\ndevice = accelerator.device" if kept else ""
    rewritten(BEFORE.format(lines=before), AFTER.format(lines=lines, kept=still))


@pytest.mark.parametrize(
    "lines",
    [
        "batch = {k: v.to(device) for k, v in batch.items()}",
        "batch = {k: v.to(device) if torch.is_tensor(v) else v for k, v in batch.items()}",
        "for k, v in batch.items():\n        batch[k] = v.to(device)",
        "for k, v in batch.items():\n        if torch.is_tensor(v):\n            batch[k] = v.cuda()",
        "for k in batch:\n        batch[k] = batch[k].to(device, non_blocking=True)",
        "batch = batch.to(device)  # on the card",
        "batch: dict = batch.to(device)",
        "# move to the GPU\n    batch = batch.to(device)",
        "# 将特征放入到训练设备中\n    batch = batch.to(device)",
        "# データをGPUに転送\n    batch = batch.to(device)",
        "# 배치를 장치로 이동\n    batch = batch.to(device)",
        "batch = batch.cuda() if torch.cuda.is_available() else batch",
    ],
)
def test_a_statement_that_only_moves_goes(lines: str) -> None:
    becomes(lines, "")


@pytest.mark.parametrize(
    "moved", ["[t.to(device) for t in (x, y)]", "(t.to(device) for t in [x, y])", "tuple(t.to(device) for t in (x, y))"]
)
def test_the_members_of_a_batch_that_are_moved_by_turns(moved: str) -> None:
    source = training().replace("x, y = x.to(device), y.to(device)", "x, y = {}")
    assert "x, y = {}" in source
    text = migrated(source.format(moved))
    assert "accelerator.prepare(model, optimizer, loader)" in text and "x, y =" not in text
    assert "x, y = (y, x)" in migrated(source.format("[t.to(device) for t in (y, x)]"))
    parted = source.replace("x, y = {}", "(x,) = [t.to(device) for t in (x,)]\n        table[y.tolist()] = y")
    assert "device_placement" in migrated(parted)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("inputs = batch.to(device)", "inputs = batch"),
        ("x, y = [part.to(device) for part in batch]", "x, y = batch"),
        ("parts = tuple(part.to(device) for part in batch)", "parts = tuple(batch)"),
        ("parts: list = batch.to(device)", "parts: list = batch"),
        ("parts = [p.to(device) for p in batch]\n    show(parts)", "parts = list(batch)\n    show(parts)"),
        ("batch = list(p.to(device) for p in batch)\n    show(batch)", "batch = list(batch)\n    show(batch)"),
        ("parts = [p.to(device) for p in batch]\n    parts.append(0)", "parts = list(batch)\n    parts.append(0)"),
        ("batch = [p.to(device) for p in batch]\n    show(batch[0], *batch)", "show(batch[0], *batch)"),
        (
            "batch = tuple(p.to(device) for p in batch)\n    x, y = batch[:2]",
            "batch = tuple(batch)\n    x, y = batch[:2]",
        ),
        ("batch, n = [p.to(device) for p in batch], 2\n    show(batch)", "batch, n = list(batch), 2\n    show(batch)"),
        ("x = batch['x'].to(device, torch.float64)", "x = batch['x'].to(torch.float64)"),
        ("x = batch['x'].view(-1).to(device)", "x = batch['x'].view(-1)"),
        (
            "named = {k: v.to(device) for k, v in batch.items() if k != 'id'}",
            "named = {k: v for k, v in batch.items() if k != 'id'}",
        ),
        ("if verbose:\n        batch = batch.to(device)\n        count()", "if verbose:\n        count()"),
        (
            "for k, v in batch.items():\n        other[k] = v.to(device)",
            "for k, v in batch.items():\n        other[k] = v",
        ),
        ("# shuffle the rows\n    batch = batch.to(device)", "# shuffle the rows"),
        ("# batch = pinned(batch).to(device)\n    batch = batch.to(device)", "# batch = pinned(batch).to(device)"),
        (
            "# rows are padded\n    # with zeros;\n    # put them on the GPU\n    batch = batch.to(device)",
            "# rows are padded\n    # with zeros;\n    # put them on the GPU",
        ),
    ],
)
def test_what_else_a_statement_says_stays(before: str, after: str) -> None:
    becomes(before, after)


@pytest.mark.parametrize(
    "lines",
    ["noise = torch.randn(4).to(device)", "mask = torch.ones(4, device=device)", "h = [z.to(device) for z in zs]"],
)
def test_what_no_loader_gave_is_still_moved(lines: str) -> None:
    becomes(lines, lines, kept=True)


PAIRS = """
import torch
from torch import nn
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(data, batch_size=4)
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for x, y, z in loader:
    {line}
    loss = model(x).sum() + y.sum() + z.sum()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x, y, z = x.view(-1, 4).to(device), y.to(device), z.to(device)", "x = x.view(-1, 4)"),
        ("x, y, z = x.to(device), y.to(device), z.view(-1).to(device)", "z = z.view(-1)"),
        ("x, y, z = x.to(device), y.view(-1).to(device), z.to(device)", "y = y.view(-1)"),
        ("x, y, z = x.view(4).to(device), y.to(device), z.view(1).to(device)", "x, z = x.view(4), z.view(1)"),
        ("x, y, z = y.to(device), x.to(device), z.to(device)", "x, y = y, x"),
        # A comma behind the last one would leave a tuple of one.
        ("x, y, z = (x.view(4).to(device), y.to(device), z.to(device),)", "x, y, z = (x.view(4), y, z,)"),
        ("x, y, z = x.view(4).to(device), (y.to(device)), z.to(device)", "x, y, z = x.view(4), (y), z"),
    ],
)
def test_what_is_only_itself_leaves_a_tuple_of_moves(before: str, after: str) -> None:
    text = migrated(PAIRS.format(line=before))
    assert f"\n    {after}\n    loss = " in text
    compile(text, "train.py", "exec")


ONE_BAR = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

data = TensorDataset(torch.randn(16, 3), torch.randn(16, 3))
loader, test_loader = DataLoader(data, batch_size=4), DataLoader(data, batch_size=4)
model = nn.Linear(3, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    bar = tqdm(loader)
    for x, y in bar:
        x, y = x.cuda(), y.cuda()
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        bar = tqdm(test_loader)
        for a, b in bar:
            a, b = a.cuda(), b.cuda()
            print((model(model(a)) - b).abs().max())
"""


def test_one_bar_over_two_loaders_is_the_loader_that_it_was_made_of_last():
    text = migrated(ONE_BAR)
    assert "x, y = x" not in text
    assert "a, b = a.to(accelerator.device), b.to(accelerator.device)" in text


def test_what_a_bar_over_one_of_two_loaders_hands_out_keeps_its_moves():
    branches = "    if epoch:\n        bar = tqdm(loader)\n    else:\n        bar = tqdm(test_loader)\n"
    text = migrated(ONE_BAR.replace("    bar = tqdm(loader)\n", branches, 1))
    assert "x, y = x.to(accelerator.device), y.to(accelerator.device)" in text


def test_a_model_that_is_moved_under_another_name_is_placed_by_prepare() -> None:
    source = BEFORE.format(lines="pass").replace(
        "model = nn.Linear(4, 2).to(device)", "net = nn.Linear(4, 2)\nmodel = net.to(device)"
    )
    text = migrated(source)
    assert "model = net\n" in text and "device = " not in text


@pytest.mark.parametrize("moved", ["model.to(device)", "model = model.to(device)"])
def test_a_model_that_is_moved_below_its_optimizer_is_placed_by_prepare(moved: str) -> None:
    before = BEFORE.format(lines="pass").replace("nn.Linear(4, 2).to(device)", "nn.Linear(4, 2)")
    text = migrated(before.replace("lr=0.1)\n", f"lr=0.1)\n{moved}\n"))
    assert "device" not in text
    assert "lr=0.1)\nmodel, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n" in text


def test_moves_of_a_model_that_is_built_in_many_branches_stay() -> None:
    built = "model = nn.Linear(4, 2).to(device)"
    branches = f"if deep == 1:\n    {built}\nelif deep == 2:\n    {built}\nelse:\n    {built}"
    text = migrated(BEFORE.format(lines="pass").replace(built, branches))
    assert branches in text and "device = accelerator.device\n" in text
    two = f"if deep == 1:\n    {built}\nelse:\n    {built}"
    assert "Linear(4, 2).to" not in migrated(BEFORE.format(lines="pass").replace(built, two))


@pytest.mark.parametrize(
    "settings",
    ["class args:\n", "class Choices:\n{body}args = Choices()\n"],
)
def test_moves_by_a_class_of_settings_that_is_handed_on(settings: str) -> None:
    body = '    device = "cuda" if torch.cuda.is_available() else "cpu"\n'
    script = (
        "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\n"
        + (settings.format(body=body) if "{" in settings else settings + body)
        + "def fit(args, model, rows, optimizer):\n    announce(args)\n    model = model.to(args.device)\n"
        "    for batch in rows:\n        batch = tuple(b.to(args.device) for b in batch)\n"
        "        loss = nn.functional.mse_loss(model(batch[0]), batch[1])\n        optimizer.zero_grad()\n"
        "        loss.backward()\n        optimizer.step()\n"
        "def announce(args):\n    print(args.device)\n"
        "model = nn.Linear(4, 1)\nrows = DataLoader(data, batch_size=4)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfit(args, model, rows, optimizer)\n"
    )
    result = migrated(script)
    assert ".to(" not in result and "device_placement" not in result


@pytest.mark.parametrize(
    ("above", "left"),
    [
        (["a batch is a pair of rows and labels", "remember to bring both to the GPU"], 1),
        (["get the inputs; data is a list of [inputs, labels]", "move them to the device"], 1),
        (["rows and labels", "move both to the device", "then train"], 3),
        (["get the rows and move", "them to the device"], 0),
        (["move all rows to the device,", "which must have room for them"], 0),
        (["move to gpu"], 0),
        (["a batch of rows"], 1),
    ],
)
@pytest.mark.parametrize("move", ["x, y = x.to(device), y.to(device)", "x, y = x.view(4, 3).to(device), y.to(device)"])
def test_of_a_comment_the_lines_go_that_speak_of_the_move(above: list[str], left: int, move: str) -> None:
    comment = "\n".join(f"        # {line}" for line in above)
    plain = "        x, y = x.to(device), y.to(device)\n"
    result = migrated(training().replace(plain, f"{comment}\n        {move}\n"))
    assert [line for line in above if f"# {line}\n" in result] == above[:left]
    inside = f"{comment}\n        if cuda:\n            {move}\n"
    result = migrated("import torch\ncuda = torch.cuda.is_available()\n" + training().replace(plain, inside))
    assert "view" in move or [line for line in above if f"# {line}\n" in result] == above[:left]


@pytest.mark.parametrize(
    "read",
    [
        "shown = next(iter(loader))[0]",
        "rows = iter(loader)\nshown = next(rows)[0]",
        "for shown, _ in loader:\n    break",
    ],
)
def test_a_batch_of_a_loader_that_took_the_name_of_the_prepared_one_is_moved(read: str) -> None:
    again = f"loader = DataLoader(data, batch_size=1)\n{read}\nprint(model(shown.to(device)).shape)\n"
    result = migrated(BEFORE.format(lines="") + again)
    assert "model(shown.to(device))" in result and 'model(batch["x"]).sum()' in result


@pytest.mark.parametrize(
    ("moved", "after"),
    [
        ("torch.randn(4).cuda().to(device)", "torch.randn(4).to(device)"),
        ("torch.randn(4).to(device).cuda()", "torch.randn(4).to(device)"),
        ("(one + other).cuda(non_blocking=True).to('cuda:0')", "(one + other).to(device)"),
        ("one.cuda().float().to(device)", "one.to(device).float().to(device)"),
        ("one.to(device, half).cuda()", "one.to(device, half).to(device)"),
        ("one.cpu().to(device)", "one.cpu().to(device)"),
    ],
)
def test_what_is_moved_twice_in_a_row_is_moved_once(moved: str, after: str) -> None:
    text = migrated(BEFORE.format(lines=f"noise = {moved}")).replace("(accelerator.device", "(device")
    assert f"    noise = {after}\n" in text


def test_a_script_that_only_predicts_with_functions_of_the_training_keeps_its_move():
    train = (
        "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\n"
        "class Tagger(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 2)\n"
        "    def encode(self, x):\n        return self.body(x)\n    def tag(self, x):\n        return self.head(x)\n"
        "def guess(model, x):\n    inner = model.encode(x)\n    return model.tag(inner)\n"
        "def show(model, rows, device):\n    for x, y in rows:\n        print(guess(model, x.to(device)))\n        break\n"
        "def fit():\n    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
        "    model = Tagger().to(device)\n    optimizer = torch.optim.Adam(model.parameters())\n"
        "    rows = DataLoader(data, batch_size=4)\n    for x, y in rows:\n        x, y = x.to(device), y.to(device)\n"
        "        loss = nn.functional.cross_entropy(model.tag(model.encode(x)), y)\n        optimizer.zero_grad()\n"
        "        loss.backward()\n        optimizer.step()\n    show(model, DataLoader(data), device)\n"
        "if __name__ == '__main__':\n    fit()\n"
    )
    predict = (
        "import torch\nfrom train import Tagger, show\ndevice = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
        "model = Tagger().to(device)\nmodel.load_state_dict(torch.load('m.pt'))\nshow(model, rows, device)\n"
    )
    again = "from train import fit\nfit()\n"
    files = {"train.py": train, "predict.py": predict, "again.py": again}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
    assert b"accelerator.prepare(" in results[0].after
    assert results[1].after == predict.encode()


def test_a_model_of_a_function_that_runs_without_the_training_keeps_its_move():
    text = migrated(
        """
        import torch
        from torch import nn

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


        def build():
            net = nn.Linear(4, 1)
            return net


        def density(x, net):
            return net(x).sum()


        def train():
            net = build().to(device)
            optimizer = torch.optim.Adam(net.parameters())
            for step in range(9):
                loss = density(torch.randn(8, 4).to(device), net)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


        def evaluate():
            net = build().to(device)
            net.load_state_dict(torch.load("net.pt"))
            net.to(device)
            print(density(torch.ones(8, 4).to(device), net))


        if __name__ == "__main__":
            evaluate()
        """
    )
    trained, evaluated = text.split("def evaluate")
    assert ".prepare(net, optimizer)" in trained and "net = build()\n" in trained
    assert "net = build().to(device)\n" in evaluated and "    net.to(device)\n" in evaluated


def test_what_a_helper_of_the_training_moves_as_a_script_of_its_own_stays():
    train = (
        "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\nfrom evaluate import evaluate, scaled\n"
        "def fit():\n    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
        "    model = nn.Linear(4, 2).to(device)\n    optimizer = torch.optim.Adam(model.parameters())\n"
        "    rows = DataLoader(data, batch_size=4)\n    for x, y in rows:\n        x, y = x.to(device), y.to(device)\n"
        "        loss = nn.functional.cross_entropy(scaled(model(scaled(x))), y)\n        optimizer.zero_grad()\n"
        "        loss.backward()\n        optimizer.step()\n    evaluate(model, DataLoader(data))\n"
        "if __name__ == '__main__':\n    fit()\n"
    )
    evaluate = (
        "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\n"
        "def scaled(batch):\n    return batch / 255\n"
        "def evaluate(model, rows):\n    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
        "    model = model.to(device)\n    for x, y in rows:\n        print(scaled(model(scaled(x.to(device)))))\n"
        "{opens}    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
        "    model = nn.Linear(4, 2){move}\n    model.load_state_dict(torch.load('m.pt', map_location='cpu'))\n"
        "    rows = DataLoader(data)\n    evaluate(model, rows)\n{calls}"
    )
    ways = [("if __name__ == '__main__':\n", ""), ("def main():\n", "if __name__ == '__main__':\n    main()\n")]
    for (opens, calls), move in [(way, move) for way in ways for move in ("", ".to(device)")]:
        files = {"train.py": train, "evaluate.py": evaluate.format(opens=opens, calls=calls, move=move)}
        results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
        assert b"accelerator.prepare(" in results[0].after
        assert results[1].after == files["evaluate.py"].encode()


def test_a_move_that_one_training_makes_needless_and_another_needs_stays():
    tune = (
        "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\ndef train(net, rows, optimizer):\n"
        "    for x, y in rows:\n        loss = nn.functional.mse_loss(net(x.cuda()), y.cuda())\n        optimizer.zero_grad()\n"
        "        loss.backward()\n        optimizer.step()\ndef tune(rows):\n    for lr in (0.1, 0.2):\n"
        "        net = nn.Linear(2, 1).cuda()\n        optimizer = torch.optim.SGD(net.parameters(), lr=lr)\n"
        "        train(net, rows, optimizer)\n"
    )
    main = (
        "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\nfrom tune import train, tune\n"
        "rows = DataLoader(data, batch_size=4)\nnet = nn.Linear(2, 1).cuda()\ntune(rows)\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\ntrain(net, rows, optimizer)\n"
        "torch.save(net.state_dict(), 'n.pt')\n"
    )
    files = {"main.py": main, "tune.py": tune}
    first, second = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
    assert b"net = nn.Linear(2, 1).to(accelerator.device)\n" in second.after
    assert b"accelerator.save(accelerator.get_state_dict(net), 'n.pt')\n" in first.after
    assert not [note.message for note in (*first.notes, *second.notes) if "writes a file" in note.message]
    assert "AM204" not in {note.code for note in (*first.notes, *second.notes)}


@pytest.mark.parametrize(("comment", "stays"), [("Move model to GPU if available", False), ("two inputs", True)])
def test_a_comment_behind_a_move_that_goes(comment: str, stays: bool):
    source = BEFORE.format(lines="noise = 1")
    moved = next(line for line in source.splitlines() if "model = " in line and ".to(" in line)
    text = migrated(source.replace(moved, f"{moved}  # {comment}"))
    assert (f"  # {comment}\n" in text) is stays
    assert "model = nn.Linear" in text


def test_a_comment_above_a_move_that_goes_stands_above_what_follows():
    text = migrated(
        """
        import torch
        from torch.utils.data import DataLoader

        device = torch.device("cuda")
        rows = DataLoader(data, batch_size=4)
        net = torch.nn.Linear(2, 1).to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in rows:
            # one step
            x = x.to(device)
            y = y.to(device)

            loss = torch.nn.functional.mse_loss(net(x), y)

            # and its gradients
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert "    # one step\n    loss = " in text
    assert "\n\n    # and its gradients\n" in text


def test_a_move_of_a_function_that_another_training_never_calls_goes():
    steps = """
import torch


def {name}(net, rows, optimizer, device):
    for x, y in rows:
        x, y = x.to(device), y.to(device)
        loss = torch.nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
    script = """
import torch
from torch.utils.data import DataLoader
from steps import {name}

device = torch.device("cuda")
rows = DataLoader(data, batch_size=4)
net = torch.nn.Linear(2, 1).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
{name}(net, rows, optimizer, device)
"""
    files = {"steps.py": "".join(steps.format(name=name) for name in ("coarse", "fine"))}
    files |= {f"{name}.py": script.format(name=name) for name in ("coarse", "fine")}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
    assert [b"accelerator.prepare(" in result.after for result in results] == [False, True, True]
    assert b".to(" not in results[0].after


def test_what_is_still_moved_goes_where_the_scripts_own_name_says():
    before = BEFORE.format(lines="noise = torch.randn(4, 1).cuda()\n    total = torch.zeros(1).to(device)")
    text = migrated(before)
    assert "noise = torch.randn(4, 1).to(device)" in text and "device = accelerator.device" in text
    assert "noise = torch.randn(4, 1).to(accelerator.device)" in migrated(
        before.replace("zeros(1).to(device)", "zeros(1)")
    )
