"""The documents are true: links lead somewhere, the shown diff is the real one, and the tour can be walked."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("fixtures/*/NOTES.md")])


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def test_rules_page_is_what_the_rules_say() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "make_rules.py"))["page"]
    assert (ROOT / "docs" / "rules.md").read_text() == page(), "docs/rules.md is out of date; run: make docs"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_to_files_of_the_repository(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    local = [link for link in links if "://" not in link]
    assert not [link for link in local if not (page.parent / link).exists()]


# The examples of rules may be parts of statements.
@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "rules.md"], ids=named)
def test_python_in_a_page_is_python(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block, named(page), "exec")


def test_readme_shows_the_diff_that_the_codemod_makes(tmp_path: Path) -> None:
    (shown,) = blocks(ROOT / "README.md", "diff")
    lines = shown.splitlines()[3:]
    (tmp_path / "train.py").write_text("".join(f"{line[1:]}\n" for line in lines if line[:1] != "+"))
    command = [sys.executable, "-m", "accel_migrate", "train.py", "--diff"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == shown


def commands(text: str) -> Iterator[str]:
    """What follows each `$ `; a here-document goes on to its END."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            if command.endswith("<<'END'"):
                for more in lines:
                    command += f"\n{more}"
                    if more == "END":
                        break
            yield command


def test_tour_can_be_walked(tmp_path: Path) -> None:
    for name, module in (("python", ""), ("accel-migrate", "-m accel_migrate"), ("accel", "-m accel_runtime")):
        (tmp_path / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        (tmp_path / name).chmod(0o755)
    told = "".join(blocks(ROOT / "docs" / "tour.md", "console"))
    script = "\n".join(command for command in commands(told) if not command.startswith("source "))
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "OMP_NUM_THREADS": "1",
    }
    # --diff exits with 1 when there is something to change, as it should; what matters is what is printed.
    done = subprocess.run(
        ["bash", "-c", script.replace("/tmp/tour", str(tmp_path / "tour"))],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    output = done.stdout.splitlines()
    for line in told.splitlines():
        if line.startswith(("Migrated", "Nothing", "the same")):
            assert line in output, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert len(re.findall(r"epoch 5: accuracy 0\.\d+ on 333 points", done.stdout)) == 3
