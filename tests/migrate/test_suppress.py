from __future__ import annotations

from pathlib import Path

from accel_migrate.suppress import suppressions

from tests.migrate.conftest import Run


def covered(text: str, code: str, line: int) -> bool:
    return suppressions(text).covering(code, line) is not None


def test_a_comment_covers_its_line_for_its_codes() -> None:
    text = "a = 1\nb = 2  # accel: ignore[AM101, AM2]\n"
    assert covered(text, "AM101", 2)
    assert not covered(text, "AM101", 1)
    assert not covered(text, "AM201", 2)


def test_a_comment_without_codes_covers_every_rule() -> None:
    assert covered("a = 1  # accel: ignore\n", "AM999", 1)


def test_a_comment_covers_the_whole_statement_it_stands_in() -> None:
    text = "f(\n    a,  # accel: ignore[AM101]\n    b,\n)\nc()\n"
    assert all(covered(text, "AM101", line) for line in (1, 2, 3, 4))
    assert not covered(text, "AM101", 5)


def test_a_comment_of_its_own_covers_no_statement() -> None:
    assert not covered("# accel: ignore[AM101]\na = 1\n", "AM101", 2)


def test_text_in_a_string_is_no_comment() -> None:
    assert not covered("a = '# accel: ignore'\n", "AM101", 1)


def test_a_suppressed_change_is_left_and_told(run: Run) -> None:
    Path("a.py").write_text("import torch\nx.cuda()  # accel: ignore[AM101]\ny.cuda()\n")
    done = run("a.py")
    assert "a.py:2:2: AM101 [suppressed]" in done.out
    assert Path("a.py").read_text().splitlines()[1:] == ["x.cuda()  # accel: ignore[AM101]", "y"]


def test_a_suppressed_note_is_gone(run: Run) -> None:
    Path("a.py").write_text("import torch\nx.half()  # accel: ignore[AM301]\n")
    assert run("a.py", "--output-format", "concise").out == "Nothing changed in 1 file.\n"


def test_a_comment_that_suppresses_nothing_is_reported(run: Run) -> None:
    Path("a.py").write_text("import torch\nx = 1  # accel: ignore[AM101]\n")
    assert "a.py:2:8: AM910 [note] the comment ignores AM101, but nothing" in run("a.py").out


def test_skip_file_skips_the_file(run: Run) -> None:
    text = "# accel: skip-file\nimport torch\nx.cuda()\n"
    Path("a.py").write_text(text)
    done = run("a.py")
    assert (done.code, Path("a.py").read_text()) == (0, text)
    assert "a.py: skipped (the comment on line 1 asks for it)" in done.out


SCRIPT = """\
import torch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2)
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    x = x.to(device)  # accel: ignore[AM201]
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_move_that_is_to_stay_stays_and_the_loop_is_migrated_around_it(command: Run) -> None:
    Path("a.py").write_text(SCRIPT)
    done = command("a.py")
    text = Path("a.py").read_text()
    assert "    x = x.to(device)  # accel: ignore[AM201]\n" in text and "device = accelerator.device\n" in text
    assert "model = torch.nn.Linear(4, 1)\n" in text and "accelerator.backward(loss)" in text
    assert "AM910" not in done.out


def test_all_moves_stay_where_their_rule_is_turned_off(command: Run) -> None:
    Path("a.py").write_text(SCRIPT.replace("  # accel: ignore[AM201]", ""))
    command("--ignore", "AM201", "a.py")
    text = Path("a.py").read_text()
    assert "    x = x.to(device)\n" in text and "model = torch.nn.Linear(4, 1).to(device)\n" in text
    assert "device = accelerator.device\n" in text and "accelerator.backward(loss)" in text
