"""A loop whose result breaks a condition is taken back in all of its files; the others stay."""

from __future__ import annotations

import ast
from pathlib import Path

from accel_migrate.flow.scopes import Module
from accel_migrate.pipeline import migrate
from accel_migrate.plan import Change, FileResult, Insert, Remove, Replace, Status
from accel_migrate.rewriting import Left, Loop, rewrite
from accel_migrate.source import Source


def source(name: str, text: str) -> Source:
    return Source.from_bytes(Path(name), text.encode())


def said_after(it: Source, index: int, text: str) -> Change:
    return Change("AM101", 1, 1, "x", edits=(Insert(it.tree.body[index], (text,)),))


def results(sources: list[Source], loops: list[Loop]) -> dict[str, FileResult]:
    modules = [Module(each) for each in sources]
    done = rewrite(modules, [], loops, {each.path: Left() for each in sources}, lambda result: None).results
    return {str(path): result for path, result in done.items()}


def loop(changes: dict[Source, list[Change]]) -> Loop:
    first = next(iter(changes))
    return Loop(first.path, 1, {each.path: found for each, found in changes.items()})


def test_a_broken_result_takes_back_its_loop_in_every_file() -> None:
    one, two, three = (source(name, "x = 1\ny = x\n") for name in ("one.py", "two.py", "three.py"))
    broken = said_after(one, 0, "print(missing)")
    fine = said_after(two, 0, "print(x)")
    done = results(
        [one, two, three], [loop({one: [broken], two: [fine]}), loop({three: [said_after(three, 0, "print(x)")]})]
    )
    assert {name: each.status for name, each in done.items()} == {
        "one.py": Status.UNCHANGED,
        "two.py": Status.UNCHANGED,
        "three.py": Status.MIGRATED,
    }
    (note,) = done["one.py"].notes
    assert note.code == "AM901" and "AM950" in note.message and "`print(missing)`" in note.message
    assert "please report" in note.detail
    assert done["one.py"].refused == (broken,) and done["two.py"].refused == (fine,)
    # It has no training loop to speak of.
    assert not done["two.py"].notes and "a training loop of one.py, which is left" in done["two.py"].reason
    assert "AM950" in done["two.py"].reason


def test_what_breaks_in_another_file_is_said_with_its_place() -> None:
    one, two = source("one.py", "x = 1\n"), source("two.py", "y = 2\nprint(y)\n")
    drops = Change("AM101", 1, 1, "goes", edits=(Remove(two.tree.body[0]),))
    done = results([one, two], [loop({one: [said_after(one, 0, "print(x)")], two: [drops]})])
    (note,) = done["one.py"].notes
    assert "AM950" in note.message and note.message.endswith("at two.py:2")
    assert "bug" not in note.detail  # the line is the script's own


def test_a_loop_that_shares_a_change_goes_with_it() -> None:
    """One function serves both; half of its callers would call it wrongly."""
    engine, one, two = (source(name, "x = 1\n") for name in ("engine.py", "one.py", "two.py"))
    shared = said_after(engine, 0, "print(x)")
    first = loop({one: [said_after(one, 0, "print(missing)")], engine: [shared]})
    second = loop({two: [said_after(two, 0, "print(x)")], engine: [shared]})
    done = results([engine, one, two], [first, second])
    assert {each.status for each in done.values()} == {Status.UNCHANGED}


def test_loops_of_one_file_are_checked_again_without_the_one_that_was_taken() -> None:
    """The second needs what the first makes: without it, it is taken back too."""
    it, other = source("train.py", "x = 1\ny = 2\n"), source("other.py", "x = 1\n")
    first = loop({other: [said_after(other, 0, "print(missing)")], it: [said_after(it, 0, "made = 1")]})
    second = loop({it: [said_after(it, 1, "print(made)")]})
    done = results([it, other], [first, second])
    assert {each.status for each in done.values()} == {Status.UNCHANGED}
    assert "`made`" in done["train.py"].notes[-1].message


def test_a_file_that_cannot_be_rewritten_fails_alone() -> None:
    it, other, third = source("train.py", "x = 1\n"), source("other.py", "x = 1\n"), source("third.py", "x = 1\n")
    wrong = Change("AM101", 1, 1, "x", edits=(Replace(0, 1, "x ="),))
    done = results(
        [it, other, third],
        [
            loop({it: [wrong], other: [said_after(other, 0, "print(x)")]}),
            loop({third: [said_after(third, 0, "print(x)")]}),
        ],
    )
    assert done["train.py"].status is Status.FAILED
    assert done["other.py"].status is Status.UNCHANGED and "train.py could not be rewritten" in done["other.py"].reason
    assert done["third.py"].status is Status.MIGRATED


def test_what_stays_is_applied_as_if_the_other_loop_had_never_been() -> None:
    it, other = source("train.py", "x = 1\ny = 2\n"), source("other.py", "x = 1\nprint(x)\n")
    bad = loop({other: [Change("AM101", 1, 1, "x", edits=(Remove(other.tree.body[0]),))]})
    good = loop({it: [said_after(it, 1, "print(y)")]})
    done = results([it, other], [bad, good])
    assert ast.unparse(ast.parse(done["train.py"].after)) == "x = 1\ny = 2\nprint(y)"
    assert done["other.py"].after == other.data


COMMON = "import torch\n\n\ndef rows():\n    return torch.randn(8, 4), torch.randn(8, 1)\n"
NET = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)
"""
SCRIPT = """import torch
from torch import nn
from common import rows
from {folder}.model import Net

x, y = rows()
model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_script_is_not_left_for_what_another_script_does() -> None:
    """Both import common.py; one moves what it makes to a GPU, the other knows of none and stays on the CPU."""
    files = {
        "common.py": COMMON,
        "one/model.py": NET,
        "one/train.py": SCRIPT.format(folder="one"),
        "two/model.py": NET,
        "two/train.py": SCRIPT.format(folder="two").replace(".cuda()", ""),
    }
    done = {str(each.path): each for each in migrate([source(name, text) for name, text in files.items()])}
    for name in ("one/train.py", "two/train.py"):
        assert done[name].status is Status.MIGRATED, done[name].reason
    assert "cpu=True" in done["two/train.py"].after.decode() and "cpu=True" not in done["one/train.py"].after.decode()


def test_a_second_violation_of_a_loop_that_is_taken_back_takes_no_other_loop() -> None:
    one, two = source("one.py", "import tools\nx = 1\n"), source("two.py", "import tools\nz = 3\n")
    tools = source("tools.py", "y = 2\nprint(y)\n")
    drops = Change("AM101", 1, 1, "goes", edits=(Remove(tools.tree.body[0]),))
    broken = loop({one: [said_after(one, 1, "print(missing)")], tools: [drops]})
    done = results([one, two, tools], [broken, loop({two: [said_after(two, 1, "print(z)")]})])
    assert done["one.py"].status is done["tools.py"].status is Status.UNCHANGED
    assert done["two.py"].status is Status.MIGRATED


def test_what_shows_in_a_file_that_no_loop_changes_takes_back_the_loop_that_causes_it() -> None:
    reader = source(
        "reader.py", "import torch\n\n\ndef read(path):\n    import ours, theirs\n    return torch.load(path)\n"
    )
    text = (
        "import time\nfrom accel_runtime import Accelerator\nfrom reader import read\nif __name__ == '__main__':\n"
        "    accelerator = Accelerator()\n    weights = {{}}\n    path = {}\n    read(path)\n"
    )
    ours = source("ours.py", text.format("'ours.pt'"))
    theirs = source("theirs.py", text.format("f'{time.time()}.pt'"))

    def saves(it: Source) -> Change:
        lines = ("accelerator.save(weights, path)", "accelerator.wait_for_everyone()")
        return Change("AM501", 5, 1, "x", edits=(Insert(it.tree.body[3].body[2], lines),))  # type: ignore[attr-defined]

    done = results([reader, ours, theirs], [loop({ours: [saves(ours)]}), loop({theirs: [saves(theirs)]})])
    assert done["ours.py"].status is Status.MIGRATED, done["ours.py"].reason
    assert "by its clock" in done["theirs.py"].reason
