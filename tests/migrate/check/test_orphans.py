"""AM951: nothing is left behind without a reader or a meaning."""

from __future__ import annotations

import pytest

from tests.migrate.check.reading import said


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("backend = 'nccl'\nstart(backend)\n", "backend = 'nccl'\nstart()\n", "the variable `backend`"),
        ("import os\nprint(os.sep)\n", "import os\nprint(1)\n", "the import `os`"),
        (
            "def move(x, where):\n    return x.to(where)\nmove(1, 2)\n",
            "def move(x, where):\n    return x\nmove(1, 2)\n",
            "`where`",
        ),
        ("def setup():\n    return 1\nsetup()\n", "def setup():\n    return 1\n", "the definition `setup`"),
        ("total = 0\ntotal += 1\nprint(total)\n", "total = 0\ntotal += 1\nprint(1)\n", "the variable `total`"),
    ],
)
def test_a_name_that_lost_its_last_reader(before: str, after: str, named: str) -> None:
    (message,) = said("AM951", before, after)
    assert named in message


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def setup():\n    join()\nsetup()\n", "def setup():\n    pass\nsetup()\n"),
        ("if x:\n    join()\n", "if x:\n    pass\n"),
        ("model = wrap(model)\n", "model = model\n"),
        ("self.model = wrap(self.model)\n", "self.model = self.model\n"),
        ("if x:\n    a = f(1)\nelse:\n    a = f(2)\n", "if x:\n    a = f(2)\nelse:\n    a = f(2)\n"),
    ],
)
def test_what_has_no_meaning_any_more(before: str, after: str) -> None:
    assert len(said("AM951", before, after)) == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a, b = f()\nprint(a, b)\n", "a, b = f()\nprint(a)\n"),  # one of several targets cannot go alone
        ("for i, x in f():\n    print(i, x)\n", "for i, x in f():\n    print(x)\n"),
        ("with f() as g:\n    print(g)\n", "with f() as g:\n    print(1)\n"),
        ("spare = 1\nprint(2)\n", "spare = 1\nprint(3)\n"),  # nobody read it before either
        ("def stub():\n    pass\nx = 1\n", "def stub():\n    pass\nx = 2\n"),
        (
            "class A:\n    def f(self, x, y):\n        return x + y\nA().f(1, 2)\n",
            "class A:\n    def f(self, x, y):\n        return x\nA().f(1, 2)\n",
        ),
        (
            "try:\n    from a import b\nexcept E:\n    b = None\nprint(b)\n",
            "try:\n    from a import b\nexcept E:\n    b = None\nprint(1)\n",
        ),
        ("x = 1\nprint(x)\nexec(text)\n", "x = 1\nprint(2)\nexec(text)\n"),  # the text may read it
        ("x = 1\nprint(x)\n", "print(2)\n"),
        ("import os\ndef f(x: os.PathLike): print(os)\n", "import os\ndef f(x: os.PathLike): print(1)\n"),
    ],
)
def test_what_is_not_ours_or_cannot_go(before: str, after: str) -> None:
    assert not said("AM951", before, after)


def test_a_name_that_another_file_reads() -> None:
    before = {"config.py": "rate = 1\nprint(rate)\n", "run.py": "from config import rate\nprint(rate)\n"}
    assert not said("AM951", before, {**before, "config.py": "rate = 1\nprint(2)\n"})
