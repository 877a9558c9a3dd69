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


def test_ends_without_a_last_look_at_all_that_it_holds() -> None:
    text = (
        "import atexit, gc\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0))\n"
        "from accel_migrate.cli import main\n"
        "main(['--explain', 'AM301'])\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "True"
