from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import pytest

from tests.migrate.conftest import Done, Run

THREE = "import torch\na.cuda()\nb.cuda()\nc.cuda()\n"


def answer(run: Run, monkeypatch: pytest.MonkeyPatch, answers: str, *arguments: str) -> Done:
    monkeypatch.setattr("sys.stdin", io.StringIO(answers))
    return run("-i", *arguments)


@pytest.mark.parametrize(
    ("answers", "after"),
    [
        ("y\nn\ny\n", "import torch\na\nb.cuda()\nc\n"),
        ("n\na\n", "import torch\na.cuda()\nb\nc\n"),
        ("y\nd\n", "import torch\na\nb.cuda()\nc.cuda()\n"),
        ("y\nq\n", "import torch\na\nb.cuda()\nc.cuda()\n"),
        ("?\nwhat\ny\nn\nn\n", "import torch\na\nb.cuda()\nc.cuda()\n"),
        ("", THREE),  # the end of input is a no to everything
    ],
)
def test_answers_decide(run: Run, monkeypatch: pytest.MonkeyPatch, answers: str, after: str) -> None:
    Path("a.py").write_text(THREE)
    done = answer(run, monkeypatch, answers, "a.py")
    assert done.code == 0
    assert Path("a.py").read_text() == after


def test_all_and_none_hold_for_one_file_and_quit_for_all(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.py", "b.py", "c.py"):
        Path(name).write_text(THREE)
    answer(run, monkeypatch, "a\nd\nq\n", ".")
    assert [Path(name).read_text().count(".cuda()") for name in ("a.py", "b.py", "c.py")] == [0, 3, 3]


def test_each_question_shows_place_code_reason_and_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.py").write_text("import torch\na.cuda()\n")
    out = answer(run, monkeypatch, "n\n", "a.py").out
    assert "1/1\na.py:2:2: AM101 prepare() moves this\n    a.cuda()\n" in out
    assert "Apply [y,n,a,d,q,e,?]? " in out
    assert "a.py:2:2: AM101 [declined]" in out


def test_editing_opens_the_rewritten_file_until_it_parses(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Path("a.py").write_text("import torch\na.cuda()\n")
    editor = tmp_path / "editor"
    second_time = 'if [ -e "$0.once" ]; then echo "b = 2" > "$1"; exit; fi'
    editor.write_text(f'#!/bin/sh\n{second_time}\ntouch "$0.once"\necho "(" >> "$1"\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delitem(os.environ, "VISUAL", raising=False)
    done = answer(run, monkeypatch, "e\n", "a.py")
    assert "what you wrote does not parse" in done.out
    assert Path("a.py").read_text() == "b = 2\n"


def test_standard_input_cannot_hold_both_script_and_answers(run: Run) -> None:
    assert run("-i", "-").code == 2


LOOP = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from data import pairs

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(pairs, batch_size=4)
model = nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = (model(x.to(device)) - y.to(device)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.save(model.state_dict(), "model.pt")
"""


def test_what_belongs_together_is_asked_once(command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.py").write_text(LOOP)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 30))
    out = command("-i", "a.py").out
    heads = [line for line in out.splitlines() if "all or none" in line]
    assert len(heads) == 1 and heads[0].startswith("1-"), out
    total = heads[0].split("/")[1].split(":")[0]
    assert f"\n{total}/{total}" in out or heads[0].startswith(f"1-{total}/"), "the last question is the last number"
    assert "-    loss.backward()\n" in out and "+    accelerator.backward(loss)\n" in out, "one preview shows all of it"
    assert "accelerator.prepare" in Path("a.py").read_text()


def test_a_no_to_one_change_keeps_the_earlier_answers(command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.py").write_text(LOOP)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" + "n\n" * 30))
    command("-i", "a.py")
    assert "accelerator.backward(loss)" in Path("a.py").read_text()


def test_a_no_to_the_loop_leaves_it_and_asks_no_more(command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.py").write_text(LOOP)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    out = command("-i", "a.py").out
    assert out.count("Apply [") == 1
    assert Path("a.py").read_text() == LOOP
