"""`make help` tells every target, and the targets name what is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()


def make(*arguments: str) -> str:
    done = subprocess.run(["make", "--no-print-directory", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def targets() -> list[str]:
    (listed,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    return str(listed).split()


def test_help_has_a_line_for_each_target_and_is_what_make_alone_says() -> None:
    told = make("help")
    assert [line.split()[1] for line in told.splitlines()] == targets()
    assert make() == told


def test_files_in_recipes_are_there() -> None:
    paths = set(re.findall(r"(?:tests|docs|demo)/[\w/.]+", make("--dry-run", "--always-make", *targets())))
    assert {"demo/run.py", "docs/make_rules.py", "tests/xla"} <= paths
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_pages_speak_of_targets_that_there_are() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    spoken = {name for page in pages for name in re.findall(r"(?:`|\$ )make ([a-z-]+)", page.read_text())}
    assert {"demo", "test", "docs"} <= spoken <= set(targets())
