"""What --verify can be asked for, told before anything is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.migrate.conftest import Run


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("-", "--verify"), "--verify runs a script from its folder; name a file"),
        (("train.py", "--verify", "--check"), "--verify stands in the place of --check"),
        (("train.py", "--shrink", "width=3"), "--shrink says what to verify with; add --verify"),
        (("train.py", "-m", "train"), "-m says what to verify; add --verify"),
        (
            ("--verify", "-m", "absent.train"),
            "there is no absent in this folder; name the files of absent.train beside -m",
        ),
        (("--verify",), "name a file, a folder, or - for standard input"),
        ((".", "--verify"), "is a folder; say what to run: -m package.module, or -- script.py"),
        (("train.py", "--verify", "--target", "accelerate"), "with --target accelerate add --processes 1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_request_that_cannot_be_meant_is_refused(run: Run, arguments: tuple[str, ...], sentence: str) -> None:
    Path("train.py").write_text("import torch\nx.cuda()\n")
    done = run(*arguments)
    assert done.code == 2
    assert sentence in " ".join(done.err.split())


def test_two_dashes_without_verify_still_name_files(run: Run) -> None:
    Path("-odd.py").write_text("import torch\nx.cuda()\n")
    assert run("--check", "--", "-odd.py").code == 1
