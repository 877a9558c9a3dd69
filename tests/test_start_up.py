"""Commands answer at once: neither torch nor libcst is imported before there is work for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "libcst", "numpy", "rich", "transformers"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("-m", "accel_migrate", "--help"),
        ("-m", "accel_runtime", "--help"),
        ("-m", "accel_runtime", "launch", "--help"),
        ("-c", "import accel_migrate.cli"),
        ("-c", "import accel_runtime"),
    ],
    ids=" ".join,
)
def test_answers_without_importing_what_is_heavy(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert "accel_" in done.stderr, "nothing was imported"
    assert not HEAVY & {name.split(".")[0] for name in lines}
