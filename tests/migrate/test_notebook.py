from __future__ import annotations

import json
from pathlib import Path

import pytest
from accel_migrate.errors import SourceError
from accel_migrate.magics import is_python, mask, unmask
from accel_migrate.notebook import Notebook
from accel_migrate.verify import check
from hypothesis import given
from hypothesis import strategies as st

from tests.migrate.conftest import Run


def notebook(*cells: str | dict[str, object], indent: int | None = 1) -> bytes:
    """A notebook as Jupyter saves it; a cell is code, or a whole cell."""
    built = [
        cell
        if isinstance(cell, dict)
        else {
            "cell_type": "code",
            "execution_count": number,
            "id": f"cell-{number}",
            "metadata": {},
            "outputs": [{"name": "stdout", "output_type": "stream", "text": ["é 1\n"]}],
            "source": cell.splitlines(keepends=True),
        }
        for number, cell in enumerate(cells, 1)
    ]
    whole = {"cells": built, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return (json.dumps(whole, indent=indent, ensure_ascii=False) + "\n").encode()


def read(data: bytes) -> Notebook:
    return Notebook.from_bytes(Path("book.ipynb"), data)


def program(book: Notebook) -> str:
    return book.source.text


def test_the_program_is_the_python_cells_with_markers_between() -> None:
    text = {"cell_type": "markdown", "id": "t", "metadata": {}, "source": ["# torch"]}
    book = read(notebook("import torch", text, "x = 1\n", "%%bash\nls", ""))
    assert program(book) == "# %%accel:cell 1\nimport torch\n# %%accel:cell 3\nx = 1\n\n# %%accel:cell 5\n\n"


def test_an_unchanged_program_gives_the_same_bytes() -> None:
    data = notebook("import torch\n%time x\n", "!ls \\\n  -l\ny = 2")
    book = read(data)
    assert book.rewritten(book.source.data) == data


@pytest.mark.parametrize("indent", [None, 1, 4])
def test_only_the_source_of_a_changed_cell_changes(indent: int | None) -> None:
    data = notebook("import torch", "a = 'é'\nx = f().cuda()\nb = 2", "y = 1", indent=indent)
    book = read(data)
    after = book.rewritten(program(book).replace(".cuda()", "").encode())
    assert after == data.replace(b"x = f().cuda()", b"x = f()")


def test_a_cell_may_grow_and_shrink() -> None:
    data = notebook("import torch", "x = 1\ny = 2")
    book = read(data)
    grown = program(book).replace("import torch\n", "import torch\nimport accel_runtime\n").replace("x = 1\n", "")
    cells = json.loads(book.rewritten(grown.encode()))["cells"]
    assert [cell["source"] for cell in cells] == [["import torch\n", "import accel_runtime"], ["y = 2"]]
    assert [cell["id"] for cell in cells] == ["cell-1", "cell-2"]
    assert cells[1]["outputs"] == [{"name": "stdout", "output_type": "stream", "text": ["é 1\n"]}]


def test_what_is_put_before_everything_lands_in_the_first_cell() -> None:
    book = read(notebook("import torch", "x = 1"))
    cells = json.loads(book.rewritten(b"import first\n" + book.source.data))["cells"]
    assert cells[0]["source"] == ["import first\n", "import torch"]


@pytest.mark.parametrize("listed", [False, True])
def test_a_source_that_is_one_string_stays_one_and_keeps_its_escapes(listed: bool) -> None:
    text = "x = '\\u00e9'\ny = z.cuda()"
    cell = {"cell_type": "code", "metadata": {}, "source": [text] if listed else text}
    data = json.dumps({"nbformat": 4, "cells": [cell]}).encode()
    book = read(data)
    assert book.rewritten(program(book).replace(".cuda()", "").encode()) == data.replace(b".cuda()", b"")


def test_places_are_cells_and_lines_in_them() -> None:
    book = read(notebook("import torch\nx = 1", "y = 2"))
    assert [book.place(line) for line in (1, 2, 3, 4, 5)] == [(1, 1), (1, 1), (1, 2), (2, 1), (2, 1)]


def test_a_rewrite_that_loses_a_border_is_refused() -> None:
    book = read(notebook("import torch", "x = 1"))
    with pytest.raises(SourceError, match="lost the border of a cell"):
        book.rewritten(program(book).replace("# %%accel:cell 2\n", "").encode())


@pytest.mark.parametrize(
    "code",
    [
        "%matplotlib inline\nx = 1\n",
        "!pip install torch \\\n    numpy\nx = 1",
        "files = !ls\nspeed = %timeit -o f()\n",
        "if True:\n    !ls\n    %cd ..\n",
        "torch.nn?\n?torch\nx = 1",
        "%%time\nx = 1\n",
        "x = 1\nfrom __future__ import annotations\n",
        "%time x = (1\n",
        "a = (5\n  % 3)\n%time b\n",
        'text = """\n!not a command\n"""\n!ls\n',
        "for i in range(3):\n    x = 1\n\n    %time y\n",
    ],
)
def test_magics_become_python_of_the_same_length_and_come_back(code: str) -> None:
    hidden: list[str] = []
    masked = mask(code, hidden)
    compile(masked, "cell", "exec")
    assert masked.count("\n") == code.count("\n")
    assert unmask(masked, hidden) == code


def test_a_string_or_an_operator_that_looks_like_a_magic_is_left() -> None:
    hidden: list[str] = []
    mask('a = (5\n  % 3)\ntext = """\n!not a command\n"""\n!ls\n', hidden)
    assert hidden == ["!ls"]


@pytest.mark.parametrize(("code", "python"), [("%%bash\nls", False), ("%%capture out\nx", True), ("%time x", True)])
def test_the_body_of_a_cell_magic_may_be_another_language(code: str, python: bool) -> None:
    assert is_python(code) is python


def test_a_notebook_in_another_language_has_no_program() -> None:
    data = json.dumps({"cells": [{"cell_type": "code", "source": "x"}], "metadata": {"language_info": {"name": "R"}}})
    assert program(read(data.encode())) == ""


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"cells": 1}', b'{"cells": [', b"\xff"])
def test_what_is_no_notebook_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(SourceError, match="is not a notebook"):
        read(data)


def test_the_command_migrates_a_notebook_cell_by_cell(run: Run) -> None:
    data = notebook("import torch\n%matplotlib inline", "print(1)", "\nx = f().cuda()")
    Path("book.ipynb").write_bytes(data)
    diff = run("--diff", "book.ipynb")
    assert diff.out.startswith("--- a/book.ipynb:cell 3\t\n+++ b/book.ipynb:cell 3\t\n@@ -1,2 +1,2 @@\n")
    assert diff.out.endswith("-x = f().cuda()\n+x = f()\n")
    done = run("book.ipynb")
    assert "AM101 prepare() moves this: cell 3:2\n" in done.out
    assert "AM911 [note] to train on several processes from this notebook" in done.out
    assert Path("book.ipynb").read_bytes() == data.replace(b".cuda()", b"")


def test_lines_of_a_note_are_those_of_their_cells(command: Run) -> None:
    cell = (
        "import torch\nfrom torch import nn\nnet = nn.Linear(2, 1)\noptimizer = torch.optim.SGD(net.parameters(), 0.1)"
    )
    loop = "for _ in range(3):\n    loss = net(torch.ones(4, 2)).sum()\n    loss.backward()\n    optimizer.step()"
    Path("book.ipynb").write_bytes(notebook(cell, loop, "\na = input()", "\n\nb = input()", "c = input()"))
    done = command("book.ipynb")
    assert "every process asks here (as in cell 4, line 3; cell 5, line 1)" in done.out
    assert "book.ipynb:cell 1:4:1: AM911" in done.out


def test_a_notebook_may_await_outside_of_any_function() -> None:
    book = read(notebook("x = await f()"))
    assert check(book.source, book.source.text).text == book.source.text


def test_a_cell_that_does_not_parse_is_named(run: Run) -> None:
    Path("book.ipynb").write_bytes(notebook("import torch", "x = (\n"))
    assert run("book.ipynb").err.startswith("accel-migrate: book.ipynb: in cell 2, line 1, does not parse:")


LINES = st.sampled_from(
    ["x = 1", "", "  ", "%time f()", "!ls", "y = 'é\u2028'", "# note", "z?", "if x:\n    y", "(a\n% b)"]
)
CODES = st.lists(LINES, max_size=5).map("\n".join)


@given(cells=st.lists(CODES, min_size=1, max_size=4), indent=st.sampled_from([None, 1, 2]))
def test_any_notebook_comes_back_byte_for_byte(cells: list[str], indent: int | None) -> None:
    data = notebook(*cells, indent=indent)
    book = read(data)
    assert book.rewritten(book.source.data) == data


@given(cells=st.lists(CODES, min_size=1, max_size=4), indent=st.sampled_from([None, 1, 2]))
def test_any_line_may_be_added_to_any_cell(cells: list[str], indent: int | None) -> None:
    book = read(notebook(*cells, indent=indent))
    program = "".join(f"{line}new = 1\n" if line.startswith("# %%accel:cell") else line for line in _lines(book))
    after = json.loads(book.rewritten(program.encode()))
    assert ["".join(cell["source"]) for cell in after["cells"]] == [f"new = 1\n{cell}" for cell in cells]


def _lines(book: Notebook) -> list[str]:
    return [f"{line}\n" for line in program(book).split("\n")[:-1]]
