"""The command around the real codemod, over the fixtures."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from accel_migrate.cli import command as click_command

from tests.cases import Case, all_cases
from tests.migrate.conftest import Run

CASES = {case.name: case for case in all_cases()}
TYPICAL = CASES["train_and_evaluate"]
SCRIPTS = [TYPICAL, CASES["dict_batches"], CASES["keep_device"]]
FORMS = {
    "as it is": lambda data: data,
    "crlf": lambda data: data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"),
    "no final newline": lambda data: data.rstrip(b"\r\n"),
    "byte order mark": lambda data: b"\xef\xbb\xbf" + data,
}


@pytest.mark.parametrize("case", SCRIPTS, ids=lambda case: case.name)
def test_git_applies_the_diff_of_a_fixture_in_every_form(command: Run, case: Case) -> None:
    subprocess.run(["git", "init", "-q", "."], check=True)
    for form in FORMS.values():
        before, after = (form((case.folder / name).read_bytes()) for name in ("before.py", "after.py"))
        Path("train.py").write_bytes(before)
        done = command("--diff", *case.options, "train.py")
        assert done.code == (before != after), done.err
        if before != after:
            subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], input=done.raw, check=True)
        assert Path("train.py").read_bytes() == after


@pytest.mark.parametrize("case", SCRIPTS, ids=lambda case: case.name)
def test_standard_input_comes_back_as_the_file_would(command: Run, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    given = io.TextIOWrapper(io.BytesIO((case.folder / "before.py").read_bytes()))
    monkeypatch.setattr("sys.stdin", given)
    assert command("-q", *case.options, "-").raw == (case.folder / "after.py").read_bytes()


def test_every_code_can_be_explained_and_every_fixture_brought_back(command: Run) -> None:
    for case in CASES.values():
        shutil.copytree(case.folder, case.name)
    before = {path: path.read_bytes() for path in Path().rglob("*.py")}
    report = json.loads(command("--output-format", "json", ".").out)
    assert any(path.read_bytes() != data for path, data in before.items())
    assert report["summary"]["rules"]
    for code in report["summary"]["rules"]:
        assert command("--explain", code).out.startswith(f"{code} ")
    assert command("--undo").code == 0
    assert {path: path.read_bytes() for path in Path().rglob("*.py")} == before


def test_explain_tells_what_why_example_and_safety(command: Run) -> None:
    page = command("--explain", "am301").out
    assert page.startswith("AM301 backward_call (safe)\n")
    assert all(f"\n{title}\n" in page for title in ("Why", "Before", "After"))
    assert command("--explain", "all").out.count("\nWhy\n") > 10


def test_explaining_an_unknown_code_names_the_nearest(command: Run) -> None:
    done = command("--explain", "AM310")
    assert done.code == 2
    assert done.err.startswith("accel-migrate: there is no rule AM310; did you mean AM")


def test_ignoring_what_a_loop_needs_leaves_the_loop(command: Run) -> None:
    before = (TYPICAL.folder / "before.py").read_bytes()
    Path("train.py").write_bytes(before)
    done = command("--ignore", "AM301", "train.py")
    assert "AM301 [deselected]" in done.out and "AM901 [note]" in done.out
    assert Path("train.py").read_bytes() == before


def test_asking_shows_what_a_change_does_on_its_own(command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(TYPICAL.folder / "before.py", "train.py")
    monkeypatch.setattr("sys.stdin", io.StringIO("a\n"))
    done = command("-i", *TYPICAL.options, "train.py")
    assert "+from accel_runtime import Accelerator" in done.out
    assert "changes that a training loop is migrated by, all or none" in done.out
    assert Path("train.py").read_bytes() == (TYPICAL.folder / "after.py").read_bytes()


def test_the_page_about_the_command_names_every_option_and_its_examples_are_true(command: Run) -> None:
    page = (Path(__file__).parents[2] / "docs/commands/accel-migrate.md").read_text()
    options = {name for parameter in click_command.params for name in parameter.opts if name.startswith("--")}
    assert {name for name in options if name not in page} <= {"--help", "--version", "--quiet", "--verbose"}
    example = page.split("```text\n")[1].split("```")[0]
    shutil.copy(CASES["keep_device"].folder / "before.py", "train.py")
    assert example == command(*CASES["keep_device"].options, "train.py").out, "copy the report into the page"
    table = page.split("```toml\n")[1].split("```")[0]
    Path("pyproject.toml").write_text(table)
    Path("a.py").write_text("print(1)\n")
    assert command("a.py").code == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_a_shell(command: Run, shell: str) -> None:
    assert "_ACCEL_MIGRATE_COMPLETE" in command("--completion", shell).out


@pytest.mark.parametrize("name", ["ddp_spawn_or_call", "ddp_torchrun", "ddp_reduced_metrics"])
def test_the_report_fits_on_a_screen(command: Run, name: str) -> None:
    shutil.copy(CASES[name].folder / "before.py", "train.py")
    shown = command(*CASES[name].options, "--check", "train.py").out.splitlines()
    assert len(shown) <= 24
    assert "AM801" not in "".join(shown) or "AM801" in [line for line in shown if "[note]" in line][-1]
    codes = {line.split()[1] for line in (CASES[name].folder / "report.txt").read_text().splitlines() if ": AM" in line}
    assert all(any(code in line for line in shown) for code in codes)
