"""AM102: what all rounds of a loop share is prepared before it, the rest in each round."""

from __future__ import annotations

from textwrap import indent

import pytest
from accel_migrate.settings import Settings

from tests.migrate.rules.scripts import training
from tests.migrate.rules.verbs import migrated, unchanged
from tests.migrate.test_reasons import results

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader

loader = DataLoader(rows(), batch_size=4)
for rate in (0.1, 0.2):
    model = nn.Linear(4, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for x, y in loader:
        loss = (model(x.cuda()) - y.cuda()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_a_loader_that_all_rounds_share_is_prepared_before_them() -> None:
    lines = migrated(SCRIPT).splitlines()
    first = lines.index("for rate in (0.1, 0.2):")
    assert lines[first - 1] == "loader = accelerator.prepare(loader)"
    assert "    model, optimizer = accelerator.prepare(model, optimizer)" in lines[first:]


def test_each_loader_is_prepared_before_the_loop_that_does_not_build_it() -> None:
    inner = SCRIPT.partition("for rate")[2].replace("\n", "\n    ").rstrip()
    nested = SCRIPT.partition("for rate")[0] + (
        "for width in (1, 2):\n"
        "    other = DataLoader(rows(), batch_size=width)\n"
        f"    for rate{inner}\n"
        "        for x, y in other:\n"
        "            (model(x.cuda()) - y.cuda()).pow(2).mean().backward()\n"
        "            optimizer.step()\n"
    )
    text = migrated(nested)
    assert "loader = accelerator.prepare(loader)\nfor width in (1, 2):" in text
    assert "    other = accelerator.prepare(other)\n    for rate in (0.1, 0.2):" in text


def test_a_loader_that_each_round_builds_is_prepared_in_it() -> None:
    built = SCRIPT.replace("loader = ", "rows()\n").replace(
        "    model =", "    loader = DataLoader(rows(), batch_size=4)\n    model ="
    )
    assert "    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in migrated(built)


def test_a_length_that_a_round_asks_for_before_it_prepares_is_that_of_the_bare_loader() -> None:
    asked = SCRIPT.replace("lr=rate)\n", "lr=rate / len(loader))\n")
    assert "loader would be prepared again in each round" in unchanged(asked)


def test_a_loader_that_is_built_anew_after_the_loop_is_not_taken_for_the_first() -> None:
    unchanged(SCRIPT + "loader = DataLoader(rows(), batch_size=8)\n")


def test_a_loader_that_is_handed_over_by_the_name_of_the_function_that_makes_it():
    data = """import torch
from torch.utils.data import DataLoader, TensorDataset

def loader_of(size):
    return DataLoader(TensorDataset(torch.rand(size, 4)), batch_size=4, shuffle=True)
"""
    train = """import torch
from torch import nn
from data import loader_of

def run(model, optimizer, loader_of):
    for (x,) in loader_of:
        loss = model(x.cuda()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

model = nn.Linear(4, 1).cuda()
batches = loader_of(64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run(model, optimizer, batches)
"""
    assert "accelerator.prepare(model, optimizer, batches)" in results(data=data, train=train)["train"].after.decode()


CHOSEN = """
    import sys
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    kind = sys.argv[1]
    {choice}
    loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,))), batch_size=8)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
"""
MADE = "net = nn.Linear(4, 2).cuda()"


@pytest.mark.parametrize(
    "lines",
    [
        f"if kind == 'flat':\n    {MADE}\nelse:\n    raise ValueError(kind)",
        f"if kind != 'flat':\n    sys.exit('not known')\nelse:\n    {MADE}",
        f"if kind == 'flat':\n    {MADE}\nelif kind:\n    raise ValueError(kind)\nelse:\n    sys.exit()",
        f"if kind:\n    if kind == 'flat':\n        {MADE}\n    else:\n        raise ValueError(kind)\nelse:\n    exit()",
    ],
)
def test_what_the_only_branch_that_goes_on_builds_is_there_below(lines: str) -> None:
    result = migrated(CHOSEN.format(choice=indent(lines, "    ").strip()))
    assert "accelerator = Accelerator()\nnet, opt, loader = accelerator.prepare(net, opt, loader)\n" in result


@pytest.mark.parametrize(
    "lines",
    [
        f"if kind == 'flat':\n    {MADE}\nelse:\n    print(kind)",
        f"if kind:\n    if kind == 'flat':\n        {MADE}\nelse:\n    raise ValueError(kind)",
        f"if kind == 'flat':\n    {MADE}\nelse:\n    if not kind:\n        raise ValueError(kind)",
    ],
)
def test_what_one_of_two_branches_that_go_on_builds_is_left(lines: str) -> None:
    reason = unchanged(CHOSEN.format(choice=indent(lines, "    ").strip()))
    assert reason == "`net` is built only under a condition"


KEPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader


class Runner:
    def __init__(self, net, rule, opt, cells=None):
        self.net, self.rule = None, rule
        self.net = net
        self.opt = opt
        {more}

    def prepare(self):
        self.net.weight.data.zero_()

    def once(self, cells):
        for x, y in cells:
            loss = self.rule(self.net(x.cuda()), y.cuda())
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()


cells = DataLoader(rows(), batch_size=4)
net = nn.Linear(4, 1).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
runner = Runner(net, nn.MSELoss(), opt{handed})
runner.once(cells)
"""


def test_an_object_that_only_keeps_what_it_is_handed_is_made_of_what_is_prepared() -> None:
    for more, handed in (
        ("pass", ""),
        ("self.name = type(rule).__name__", ""),
        ("self.cells = cells", ", cells=cells"),
    ):
        lines = migrated(KEPT.format(more=more, handed=handed)).splitlines()
        prepared = lines.index("net, opt, cells = accelerator.prepare(net, opt, cells)")
        assert lines[prepared + 1].startswith("runner = Runner(")


def test_an_object_that_does_more_with_it_is_not_made_of_what_is_prepared() -> None:
    for more, handed in (
        ("net.weight.data.zero_()", ""),
        ("self.net.requires_grad_(False)", ""),
        ("self.prepare()", ""),
        ("register(self)", ""),
        ("self.rates = torch.optim.lr_scheduler.StepLR(opt, 2)", ""),
        ("self.length = len(cells)", ", cells=cells"),
    ):
        assert "would keep net as it is before prepare()" in unchanged(KEPT.format(more=more, handed=handed)), more


def test_an_object_that_is_made_before_all_is_built_keeps_what_is_not_prepared() -> None:
    early = KEPT.format(more="pass", handed="")
    built = "cells = DataLoader(rows(), batch_size=4)\n"
    early = early.replace(built, "").replace("runner.once", f"{built}runner.once")
    assert "takes up the optimizer before" in unchanged(early, Settings(target="accelerate"))
    assert "    def once(self, cells):\n        cells = self.accelerator.prepare(cells)\n" in migrated(early)


LISTED = """
import torch
from torch import nn
from torch.utils.data import DataLoader

loaders = []
for part in parts():
    loaders.append(DataLoader(part, batch_size=4))
{unpacked}
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in {name}:
    loss = (model(x) - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("unpacked", ["first, second = loaders", "first, second = [DataLoader(p) for p in parts()]"])
def test_a_loader_that_is_unpacked_from_a_list_is_prepared_by_its_name(unpacked: str) -> None:
    source = LISTED.format(unpacked=unpacked, name="first")
    assert "model, optimizer, first = accelerator.prepare(model, optimizer, first)" in migrated(source)


@pytest.mark.parametrize(
    ("unpacked", "name"),
    [
        ("first, *rest = loaders", "rest"),
        ("first, second = loaders\nshow(loaders[0])", "first"),
        ("loaders.append(rows())\nfirst, second = loaders", "first"),
    ],
)
def test_what_a_list_may_hold_beside_loaders_or_give_to_others_is_not_prepared(unpacked: str, name: str) -> None:
    assert "prepare(model, optimizer)" in migrated(LISTED.format(unpacked=unpacked, name=name))


def test_a_loader_of_another_script_with_a_helper_in_common_is_not_prepared():
    shared = "def step(model, x):\n    return model(x).sum()\n"
    head = (
        "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\nfrom shared import step\n"
        "model = nn.Linear(4, 1)\noptimizer = torch.optim.Adam(model.parameters())\n"
    )
    body = "    loss = step(model, x)\n    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n"
    drawn = f"{head}for _ in range(9):\n    x = torch.randn(8, 4)\n{body}"
    loaded = f"{head}rows = DataLoader(data, batch_size=4)\nfor x in rows:\n{body}"
    found = results(shared=shared, drawn=drawn, loaded=loaded)
    assert b"model, optimizer = accelerator.prepare(model, optimizer)\nfor _" in found["drawn"].after
    assert b"model, optimizer, rows = accelerator.prepare(model, optimizer, rows)\nfor x" in found["loaded"].after


def test_names_the_loader_that_is_trained_on_before_those_of_evaluations() -> None:
    drawn = training(
        inside="pass", after="for x, y in test_loader:\n    right += (model(x).argmax(1) == y).sum().item()"
    )
    drawn = drawn.replace("    total = 0.0\n", "    right, total = 0, 0.0\n    rows = iter(loader)\n")
    drawn = drawn.replace("for i, (x, y) in enumerate(loader):", "for i in range(10):\n        x, y = next(rows)")
    assert "model, optimizer, loader, test_loader = accelerator.prepare(" in migrated(drawn)


@pytest.mark.parametrize(
    ("comment", "above"),
    [
        ("# optimizer = torch.optim.Adam(model.parameters())\n# scheduler.step()\n\n", True),
        ("# optimizer = torch.optim.Adam(\n#     model.parameters(),\n# )\n\n", True),
        ("# epochs = 3\nepochs = 2\n", False),  # of what follows
        ("# training\n\n", False),
        ("# note: training\n\n", False),
        ("# it trains here\n\n", False),
    ],
)
def test_stands_below_what_is_commented_out_beside_the_optimizer(comment: str, above: bool) -> None:
    text = migrated(training(ready=comment + "start = 0\n"))
    assert (text.index("# ") < text.index(".prepare(")) is above


DECLARED = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    {above}
    def main():
        global model
        loader = DataLoader(data(), batch_size=4)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(loader, optimizer)

    def train(loader, optimizer):
        for x, y in loader:
            loss = (model(x) - y).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    main()
    """


def test_a_global_that_one_function_declares_and_builds_is_prepared_there():
    result = migrated(DECLARED.format(above=""))
    assert "        train(loader, optimizer, accelerator)\n".replace("        ", "    ") in result
    assert "    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n" in result


def test_a_global_that_is_built_elsewhere_too_leaves_the_loop():
    assert unchanged(DECLARED.format(above="model = nn.Linear(4, 1)")).startswith("no place has all")
    undeclared = DECLARED.format(above="model = nn.Linear(4, 1)").replace("        global model\n", "")
    undeclared = undeclared.replace("        model = nn.Linear(4, 1)\n        opt", "        opt")
    assert "def main():\n    global model\n    loader = " in migrated(undeclared)


BORROWED = '''
import torch
from torch import nn
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(data(), batch_size=4)


def main():
    """Train."""
    model = nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = (model(x.to(device)) - y.to(device)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
'''


def test_a_global_loader_is_declared_where_the_one_function_that_builds_the_rest_prepares_it():
    result = migrated(BORROWED)
    assert '    """Train."""\n    global loader\n    model = nn.Linear(4, 1)\n' in result
    assert (
        "    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n    for x, y in loader:"
        in result
    )
    helper = BORROWED.replace(
        "    for x, y in loader:",
        "    train(model, optimizer)\n\n\ndef train(model, optimizer):\n    for x, y in loader:",
    )
    result = migrated(helper)
    assert "    global loader\n    model = nn.Linear(4, 1)\n" in result and result.count("global") == 1


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("    main()\n", "    for _ in range(2):\n        main()\n"),
        ("    main()\n", "    main()\n    main()\n"),
        ("    main()\n", "    run(main)\n"),
        ("def main():", "def again():\n    global loader\n    loader = DataLoader(data())\n\n\ndef main():"),
    ],
)
def test_a_global_loader_that_would_be_prepared_twice_or_is_built_again_leaves_the_loop(line: str, other: str):
    assert unchanged(BORROWED.replace(line, other)).startswith("no place has all")


def test_a_call_that_is_too_long_for_two_lines_has_one_for_each_object():
    names = ["a_loader_of_all_that_is_trained_on", "a_loader_of_what_is_held_out_of_it", "a_loader_of_what_comes_last"]
    built = "".join(f"{name} = DataLoader(data, batch_size=4)\n" for name in names)
    loops = "".join(
        f"hits = 0\nfor x, y in {name}:\n    x, y = x.to(device), y.to(device)\n"
        "    hits += (model(x).argmax(1) == y).sum().item()\nprint(hits)\n"
        for name in names
    )
    after = migrated(training(ready=built, after=loops))
    listed = "".join(f"    {name},\n" for name in ("model", "optimizer", "loader", *names))
    assert f"\n(\n{listed}) = accelerator.prepare(\n{listed})\n" in after


FIT_AND_PREDICT = """
def fit(loader):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def predict():
    found = []
    unseen = DataLoader(data, batch_size=4)
    model.eval()
    with torch.no_grad():
        for x, _ in unseen:
            found.extend(model(x.to(device)).argmax(1).cpu().tolist())
    print(found)
"""


def test_a_function_that_only_predicts_with_a_loader_of_its_own_is_no_place_to_prepare():
    called = training(functions=FIT_AND_PREDICT).partition("for epoch in")[0] + "fit(loader)\npredict()\n"
    assert "\nmodel, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n" in migrated(called)


def test_a_global_whose_name_a_parameter_has_is_not_declared_beside_it():
    reason = unchanged(
        """
        import argparse
        from torch import nn, optim
        from nets import load, pieces

        tagger = argparse.ArgumentParser()
        args = tagger.parse_args()


        def fit(tagger, rows):
            optimizer = optim.Adam(tagger.model.parameters(), lr=0.1)
            for epoch in range(3):
                one_epoch(tagger, rows, optimizer)


        def one_epoch(tagger, rows, optimizer):
            for x, y in pieces(rows, 4):
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(tagger(x), y)
                loss.backward()
                optimizer.step()


        tagger, rows = load(args.words)
        tagger.model = nn.Linear(2, 1)
        fit(tagger, rows)
        """
    )
    assert "no place has all that `prepare` must take" in reason
