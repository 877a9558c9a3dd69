"""Writes docs/proofs/: for each family of the gallery the page of `--verify --html` on one of its cases, with the curves.

Trainings take minutes, so this is `make proofs` and no part of `make docs`; a test fails when a case has changed since.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from site_pages import PROVEN, ROOT

PROOFS = ROOT / "docs" / "proofs"


def mark(case: str) -> str:
    """The line of a page that says which case it was made of, before and after."""
    texts = b"".join((ROOT / "fixtures" / case / name).read_bytes() for name in ("before.py", "after.py"))
    return f"<!-- {case} {hashlib.sha256(texts).hexdigest()} -->"


def page(case: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "fixtures" / case / "before.py", Path(folder, f"{case}.py"))
        command = [sys.executable, "-m", "accel_migrate", f"{case}.py", "--verify", "--on-cpu", "--html", "proof.html"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{case} is not proven:\n{done.stdout}{done.stderr}")
        return f"{Path(folder, 'proof.html').read_text().rstrip()}\n{mark(case)}\n"


if __name__ == "__main__":
    PROOFS.mkdir(exist_ok=True)
    for made in sys.argv[1:] or PROVEN.values():
        (PROOFS / f"{made}.html").write_text(page(made))
        print(made)
