"""What only the code that went had read goes with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.apply import apply
from accel_migrate.emptied import emptied
from accel_migrate.flow.version import Version
from accel_migrate.leftovers import leftovers
from accel_migrate.source import Source


def tidied(before: str, after: str, other: str = "") -> str:
    """The original without what the rewrite left behind, beside another file."""
    old, new = (Version(Source.from_bytes(Path("train.py"), text.encode())) for text in (before, after))
    others = [Source.from_bytes(Path("other.py"), other.encode())]
    changes = [*leftovers(old, new, others), *emptied(old, new, others)]
    return apply(old.source, [edit for change in changes for edit in change.edits])


@pytest.mark.parametrize(
    ("before", "after", "gone"),
    [
        ("import os\nprint(os)\n", "import os\nprint(1)\n", "import os\n"),
        ("import os, sys\nprint(os, sys)\n", "import os, sys\nprint(os)\n", ", sys"),
        ("from a import b, c\nprint(b, c)\n", "from a import b, c\nprint(c)\n", "b, "),
        ("from a import b, c, d\nprint(b, c, d)\n", "from a import b, c, d\nprint(d)\n", "b, c, "),
        (
            "from os import path, sep\nprint(path, sep)\n",
            "from os import path, sep\nprint()\n",
            "from os import path, sep\n",
        ),
        (
            "n = torch.cuda.device_count()\nprint(n)\n",
            "n = torch.cuda.device_count()\nprint()\n",
            "n = torch.cuda.device_count()\n",
        ),
        ('d = torch.device("cpu")\nprint(d)\n', 'd = torch.device("cpu")\nprint()\n', 'd = torch.device("cpu")\n'),
        ("d = 'cuda:{}'.format(n)\nprint(d)\n", "d = 'cuda:{}'.format(n)\nprint()\n", "d = 'cuda:{}'.format(n)\n"),
        (
            "def f():\n    a = 1\n    b = 2\n    print(a, b)\n",
            "def f():\n    a = 1\n    b = 2\n    print(a)\n",
            "    b = 2\n",
        ),
    ],
)
def test_imports_and_variables(before: str, after: str, gone: str) -> None:
    assert tidied(before, after) == before.replace(gone, "", 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("n = draw()\nprint(n)\n", "n = draw()\nprint()\n"),  # a call may do more than it returns
        ("from a import b, c\nprint(b, c)\n", "from a import b, c\nprint()\n"),  # and so may an import of one's own
        ("a = b = 1\nprint(a, b)\n", "a = b = 1\nprint(a)\n"),
        ("import torch.cuda\nprint(torch)\n", "import torch.cuda\nprint()\n"),
        (
            "try:\n    import a\nexcept ImportError:\n    a = None\nprint(a)\n",
            "try:\n    import a\nexcept ImportError:\n    a = None\nprint()\n",
        ),
        ("__all__ = ['a']\na = 1\nprint(a)\n", "__all__ = ['a']\na = 1\nprint()\n"),
        ("a = 1\nprint(a)\nglobals()['b'] = 2\n", "a = 1\nprint()\nglobals()['b'] = 2\n"),
        ("a = 1\nprint()\n", "a = 1\nprint(2)\n"),
        ("class A:\n    a = 1\n    print(a)\n", "class A:\n    a = 1\n    print()\n"),
        ("if x:\n    a = 1\nelse:\n    a = make()\nprint(a)\n", "if x:\n    a = 1\nelse:\n    a = make()\nprint()\n"),
    ],
)
def test_what_stays(before: str, after: str) -> None:
    assert tidied(before, after) == before


def test_a_name_that_another_file_gets_by_a_star_stays() -> None:
    before, after = "import torch\nprint(torch)\n", "import torch\nprint()\n"
    assert tidied(before, after, "from train import *\nprint(torch.cuda)\n") == before
    assert tidied(before, after, "import torch\nfrom train import *\nprint(torch.cuda)\n") == "print(torch)\n"
    assert tidied(before, after, "from train import *\nprint(numpy)\n") == "print(torch)\n"


def test_one_of_several_names_that_nothing_reads_any_more_becomes_an_underscore() -> None:
    both = "a, b = draw()\nprint({})\n"
    assert tidied(both.format("a, b"), both.format("a")) == "a, _ = draw()\nprint(a, b)\n"
    assert tidied(both.format("a, b"), both.format("")) == both.format("a, b")
    told = "from gettext import gettext as _\n" + both
    assert tidied(told.format("a, b, _('x')"), told.format("a, _('x')")) == told.format("a, b, _('x')")


def test_a_function_that_does_nothing_goes_with_its_calls() -> None:
    before = "def setup(rank):\n    join(rank)\n\nsetup(0)\nprint(1)\n"
    assert tidied(before, before.replace("join(rank)", "pass")) == "print(1)\n"
    used = before.replace("setup(0)", "x = setup(0)")
    assert tidied(used, used.replace("join(rank)", "pass")) == used
    handed = before.replace("setup(0)", "start(setup)")
    assert tidied(handed, handed.replace("join(rank)", "pass")) == handed
    acts = before.replace("setup(0)", "setup(draw())")
    assert tidied(acts, acts.replace("join(rank)", "pass")) == acts


def test_branches_that_became_the_same() -> None:
    before = "if gpu is None:\n    a = load(1)\nelse:\n    a = load(2)\n"
    assert tidied(before, before.replace("load(2)", "load(1)")) == "a = load(1)\n"
    acts = before.replace("gpu is None", "draw()")
    assert tidied(acts, acts.replace("load(2)", "load(1)")) == acts


def test_a_name_that_would_be_given_to_itself() -> None:
    before = "model = build()\nmodel = wrap(model)\nrun(model)\n"
    assert tidied(before, before.replace("wrap(model)", "model")) == "model = build()\nrun(model)\n"
    own = "model = build()\nmodel = model\nrun(model)\n"
    assert tidied(own, own.replace("run(model)", "run(model, 1)")) == own


def test_each_if_whose_ways_became_the_same_gives_way_to_its_body() -> None:
    moved = "if gpu:\n    {0} = wrap({0}.cuda())  # input\nelse:\n    {0} = wrap({0})\n"
    plain = "if gpu:\n    {0} = wrap({0})  # input\nelse:\n    {0} = wrap({0})\n"
    before, after = ("".join(text.format(name) for name in "xy") for text in (moved, plain))
    assert tidied(before, after) == "x = wrap(x.cuda())  # input\ny = wrap(y.cuda())  # input\n"


def test_an_if_that_cannot_be_told_from_another_stays() -> None:
    branch = "if gpu:\n    x = wrap(x.{})\nelse:\n    x = wrap(x)\n"
    before = branch.format("cuda()") + branch.format("T")
    after = branch.format("cuda()").replace(".cuda()", "") + branch.format("T")
    assert tidied(before, after) == before
