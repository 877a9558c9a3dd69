"""The command as a person meets it: what it prints where, what it writes, how it exits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from tests.migrate.conftest import Run

TRAIN = "import torch\nmodel = Net().cuda()\n"


def test_rewrites_in_place_and_answers_first(run: Run) -> None:
    Path("train.py").write_text(TRAIN)
    done = run("train.py")
    assert done.code == 0
    assert done.out.splitlines()[0] == "Migrated 1 of 1 file with 1 change."
    assert done.out.endswith("\ntrain.py: migrated\n    AM101 prepare() moves this: line 2\n")
    assert Path("train.py").read_text() == "import torch\nmodel = Net()\n"


def test_check_writes_nothing_and_exits_with_one(run: Run) -> None:
    Path("train.py").write_text(TRAIN)
    done = run("--check", "train.py")
    assert done.code == 1
    assert "Would migrate 1 of 1 file" in done.out
    assert Path("train.py").read_text() == TRAIN


def test_check_is_content_with_notes_and_with_what_only_unsafe_fixes_would_do(run: Run) -> None:
    Path("train.py").write_text("import torch\nmodel.half()\nmodel.xpu()\n")
    done = run("--check", "train.py")
    assert done.code == 0
    assert "AM301 [note]" in done.out and "AM201 [review]" in done.out


def test_diff_goes_to_standard_output_alone(run: Run) -> None:
    Path("train.py").write_text(TRAIN)
    done = run("--diff", "train.py")
    assert done.code == 1
    assert done.out.startswith("--- a/train.py\n+++ b/train.py\n@@ -1,2 +1,2 @@\n")
    assert "AM101" in done.err
    assert Path("train.py").read_text() == TRAIN


def test_a_failed_file_beats_a_change_and_the_others_are_still_handled(run: Run) -> None:
    Path("bad.py").write_text("import torch\nx = (\n")
    Path("train.py").write_text(TRAIN)
    done = run("--check", "train.py", "bad.py")
    assert done.code == 2
    assert done.err == "accel-migrate: bad.py:2: does not parse: '(' was never closed\n"
    assert "train.py: would be migrated\n    AM101 prepare() moves this: line 2\n" in done.out


@pytest.mark.parametrize(
    ("path", "data", "message"),
    [
        ("missing.py", None, "missing.py: does not exist; check the path"),
        ("data.py", b"torch\0\1", "data.py: is a binary file, not Python source"),
        ("latin.py", b"# torch\n\nx = '\xe9'\n", "latin.py:3: is not text in its declared encoding (utf-8)"),
        ("book.ipynb", b'{"cells": [torch]}', "book.ipynb:1: is not a notebook: Expecting value"),
    ],
)
def test_a_bad_input_is_one_line_on_standard_error(run: Run, path: str, data: bytes | None, message: str) -> None:
    if data is not None:
        Path(path).write_bytes(data)
    done = run(path)
    assert (done.code, done.err) == (2, f"accel-migrate: {message}\n")


def test_a_folder_without_python_is_a_bad_input(run: Run) -> None:
    Path("docs").mkdir()
    done = run("docs")
    assert done.code == 2
    assert done.err.count("\n") == 1 and "docs: holds no Python file" in done.err


def test_a_crash_costs_one_file_and_says_how_to_report_it(run: Run) -> None:
    Path("a.py").write_text("import torch  # crash\n")
    Path("b.py").write_text(TRAIN)
    done = run("-v", ".")
    assert done.code == 2
    assert "a.py: internal error, ZeroDivisionError at fake_codemod.py" in done.err
    assert "please report it" in done.err and "Traceback" in done.err
    assert Path("b.py").read_text() == "import torch\nmodel = Net()\n"


def test_a_file_that_takes_too_long_is_left_and_named(run: Run) -> None:
    Path("a.py").write_text("import torch  # forever\n")
    Path("b.py").write_text(TRAIN)
    done = run("--time-limit", "0.2", ".")
    assert done.code == 2
    assert "a.py: took longer than 0.2 s per file" in done.err
    assert "AM101 prepare() moves this" in done.out


def test_standard_input_comes_back_rewritten_and_the_report_goes_to_standard_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "accel_migrate", "-"], input=b"import torch\r\nx = 1", capture_output=True, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (0, b"import torch\r\nx = 1")
    assert b"Nothing changed in 1 file" in done.stderr


def test_output_leaves_the_original(run: Run) -> None:
    Path("train.py").write_text(TRAIN)
    assert run("train.py", "-o", "new.py").code == 0
    assert Path("train.py").read_text() == TRAIN
    assert Path("new.py").read_text() == "import torch\nmodel = Net()\n"


def test_output_takes_one_file(run: Run) -> None:
    for name in ("a.py", "b.py"):
        Path(name).write_text(TRAIN)
    done = run(".", "-o", "new.py")
    assert (done.code, done.err) == (2, "accel-migrate: --output takes one file, and 2 were given\n")


def test_json_tells_every_file(run: Run) -> None:
    Path("train.py").write_text(TRAIN + "model.half()\n")
    Path("plain.py").write_text("print(1)\n")
    report = json.loads(run("--check", "--output-format", "json", ".").out)
    assert report["version"] == 1
    assert [(file["path"], file["status"]) for file in report["files"]] == [
        ("plain.py", "unchanged"),
        ("train.py", "migrated"),
    ]
    change = {"code": "AM101", "line": 2, "column": 14, "message": "prepare() moves this", "safety": "safe"}
    assert report["files"][1]["changes"] == [{**change, "applied": True, "decision": "applied"}]
    note = {"code": "AM301", "line": 3, "column": 6, "message": "half precision is left alone"}
    assert report["files"][1]["notes"] == [note]


def test_an_unknown_option_names_the_nearest(run: Run) -> None:
    done = run("--interactiv", ".")
    assert done.code == 2
    assert "Did you mean '--interactive'?" in done.err


def test_loads_neither_torch_nor_libcst_to_answer_help() -> None:
    program = "import sys, accel_migrate.cli; print([m for m in ('torch', 'libcst', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_file_that_is_too_large_is_named_and_not_parsed(run: Run) -> None:
    Path("data.py").write_bytes(b"import torch\nx = '" + b"a" * 5_000_000 + b"'\n")
    done = run("data.py")
    assert done.code == 2
    assert "data.py: is 5,000,020 bytes long, more than the limit of 4,194,304" in done.err


def test_nesting_that_no_parser_takes_is_one_line(run: Run) -> None:
    Path("deep.py").write_text("import torch\nx = " + "(" * 5000 + ")" * 5000 + "\n")
    done = run("deep.py")
    assert (done.code, done.err.count("\n")) == (2, 1)


def _hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_long_run_shows_progress_on_a_terminal_and_stops_quietly(tmp_path: Path) -> None:
    for number in range(800):
        (tmp_path / f"file{number}.py").write_text("import torch\nloss.backward()\n" + "x = [1, 2, 3]\n" * 500)
    command = ["-m", "accel_migrate", "--check", "-j", "2", "."]
    # Where the tests themselves run in the background, interrupts are ignored, and a child inherits that.
    child = pexpect.spawn(sys.executable, command, cwd=tmp_path, timeout=60, preexec_fn=_hear_interrupts)
    child.expect("Migrating")
    child.expect("[1-9]%")  # the processes are at work
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130
    assert b"accel-migrate: stopped" in child.before and b"Traceback" not in child.before


def test_output_also_takes_a_file_that_needs_no_change(run: Run) -> None:
    Path("plain.py").write_text("print(1)\n")
    assert run("plain.py", "-o", "new.py").code == 0
    assert Path("new.py").read_text() == "print(1)\n"


def test_output_cannot_be_combined_with_writing_nothing(run: Run) -> None:
    assert "--output writes, and --check and --diff do not" in run("--check", "a.py", "-o", "b.py").err


def test_a_file_name_that_is_no_text_does_not_stop_a_report(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.py")).write_text("import torch\n")
    for form in ("full", "json", "sarif", "github", "markdown"):
        command = [sys.executable, "-m", "accel_migrate", "-v", "--output-format", form, "--html", "report.html", "."]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b""), form


def test_a_reader_that_has_seen_enough_ends_the_run_quietly(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"file{number}.py").write_text("import torch\nloss.backward()\n" * 50)
    command = f"{sys.executable} -m accel_migrate --check -j 1 --output-format json . | head -1"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_an_error_of_our_own_exits_with_two_and_asks_for_a_report(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("not the file's fault")

    monkeypatch.setattr("accel_migrate.run.discover", fail)
    done = run(".")
    assert done.code == 2
    assert done.err.splitlines()[-2:] == [
        "ZeroDivisionError: not the file's fault",
        "accel-migrate: internal error; please report it with the lines above",
    ]


def test_what_a_file_holds_cannot_move_the_cursor(run: Run) -> None:
    Path("a\x1b[2J.py").write_text("import torch\nx.half()  # \x1b[31m red\n")
    assert "\x1b" not in run(".").out


def test_prints_its_version(run: Run) -> None:
    assert run("--version").out.startswith("accel-migrate ")
