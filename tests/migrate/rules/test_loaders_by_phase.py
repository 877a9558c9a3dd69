"""Loaders in a dictionary: the one that is trained on is prepared in its place, the others stay whole."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.migrate.rules.scripts import codes
from tests.migrate.rules.verbs import migrated, noted

SCRIPT = """
    import torch
    from torch.utils.data import DataLoader

    {loaders}
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for phase in ["train", "val"]:
            running = 0.0
            for x, y in loaders[{index}]:
                loss = torch.nn.functional.mse_loss(model(x), y)
                if {test}:
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                running += loss.item()
            print(running / sizes[phase])
    """
BUILT = 'loaders = {k: DataLoader(data[k], batch_size=4) for k in ("train", "val")}'
PHASED = {"loaders": BUILT, "index": "phase", "test": 'phase == "train"'}


def script(**parts: str) -> str:
    return SCRIPT.format(**PHASED | parts)


@pytest.mark.parametrize(
    "loaders",
    [
        BUILT,
        'loaders = {"train": DataLoader(a, batch_size=4), "val": DataLoader(b, batch_size=4)}',
        'first = DataLoader(a)\n    second = DataLoader(b)\n    loaders = {"train": first, "val": second}',
        'def make():\n        return {"train": DataLoader(a), "val": DataLoader(b)}\n    loaders = make()',
    ],
)
def test_prepares_the_entry_that_is_trained_on(loaders: str):
    assert 'loaders["train"] = accelerator.prepare(' in migrated(script(loaders=loaders))


def test_an_index_that_is_written_out_is_the_entry():
    assert "loaders['fit'] = accelerator.prepare(" in migrated(script(index="'fit'"))


def test_a_member_of_a_class_is_an_index_too():
    kind = "import enum\n    class Phase(enum.Enum):\n        FIT = 1\n    "
    loaders = kind + "loaders = {Phase.FIT: DataLoader(a, batch_size=4)}"
    assert "loaders[Phase.FIT] = accelerator.prepare(" in migrated(script(loaders=loaders, index="Phase.FIT"))
    phased = migrated(script(loaders=loaders, test="phase == Phase.FIT"))
    assert "loaders[Phase.FIT] = accelerator.prepare(" in phased


def test_says_that_the_other_phases_see_all_of_the_data():
    kept = script().replace("running += ", "kept.append(y)\n                running += ")
    assert noted(kept, "AM402").startswith("in the phases that evaluate, every process goes through all")
    assert "`running` is over this process's share" in noted(kept, "AM605")


@pytest.mark.parametrize("test", ["trains", 'phase != "val"', 'phase in ("train",)'])
def test_says_so_when_the_entry_cannot_be_told(test: str):
    assert "accelerator.prepare(loaders" not in migrated(script(test=test)).replace("model, optimizer", "")
    assert "which loader of `loaders` is trained on is not visible to the analysis" in noted(script(test=test), "AM805")
    assert "AM605" not in codes(dedent(script(test=test)))


def test_a_dictionary_of_other_things_is_none_of_loaders():
    assert "no DataLoader is sharded" in noted(script(loaders="loaders = {'train': [(a, b)], 'val': []}"), "AM805")


PHASES = """
import torch
from torch import nn
from torch.utils.data import DataLoader

def add(out, y, figures):
    loss = nn.functional.cross_entropy(out, y)
    figures["loss"] += loss.item() * len(y)
    return loss

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
both = {name: DataLoader(rows, batch_size=4, shuffle=True) for name in ["train", "val"]}
net = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
best = 9
for epoch in range(3):
    for phase in ["train", "val"]:
        figures = {"loss": 0, "hits": 0}
        for x, y in both[phase]:
            x, y = x.to(device), y.to(device)
            out = net(x)
            figures["hits"] += (out.argmax(1) == y).sum().item()
            loss = add(out, y, figures)
            if phase == "train":
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        value = figures["loss"] / 40
        if phase == "val" and value < best:
            best = value
            torch.save(net.state_dict(), "best.pt")
"""


def test_tells_a_decision_on_a_loss_that_a_function_adds_to_what_it_is_handed() -> None:
    """What the function keeps of it, a number, a tensor or an array, is not known: it is told, not averaged."""
    assert "`value` and `best` are this process's own" in noted(PHASES, "AM806")
    assert "reduce" not in migrated(PHASES)
    assert "`value`" in noted(
        PHASES.replace("(out, y, figures)\n            if", "(out, y, figures=figures)\n            if"), "AM806"
    )
    assert "AM806" not in codes(PHASES.replace("loss = add(out, y, figures)", "loss = add(out, y, {'loss': 0})"))


def test_an_evaluation_that_is_handed_a_writer_of_losses_counts_nothing_of_its_own() -> None:
    script = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader
    from torch.utils.tensorboard import SummaryWriter

    class Mean:
        def __init__(self):
            self.total = 0

        def update(self, value):
            self.total += value

    def judge(net, loader, mean, writer):
        with torch.no_grad():
            for x, y in loader:
                mean.update(unseen((net(x.cuda()) - y.cuda()).pow(2).mean().item()))

    loader = DataLoader(rows, batch_size=4, shuffle=True)
    held_out = DataLoader(others, batch_size=1)
    net = nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    writer, best = SummaryWriter(), 9
    for epoch in range(3):
        for x, y in loader:
            loss = (net(x.cuda()) - y.cuda()).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            writer.add_scalar("loss", loss.item(), epoch)
        mean = Mean()
        judge(net, held_out, mean, writer)
        if mean.total < best:
            best = mean.total
            torch.save(net.state_dict(), "best.pt")
    """
    assert "AM806" not in codes(dedent(script))
