"""A headless Chromium for tests: found, or installed from Debian's packages where that may be done."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

# Without these, Chromium looks for Google's hosts at every start.
OFFLINE = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)


@cache
def chromium() -> str:
    """The path of the browser; a test that cannot have one is skipped and says why."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for step in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
            subprocess.run(["apt-get", *step], env=environment, check=False, timeout=500, **quiet)  # type: ignore[call-overload]
        found = shutil.which("chromium")
    if found is None:
        pytest.skip("no Chromium here, and it cannot be installed: that needs root and Debian's packages")
    return found


def browse(page: Path, profile: Path, *arguments: str, width: int = 1280, height: int = 900) -> str:
    """Open a file in the browser; returns what the arguments make it print."""
    command = [
        chromium(),
        "--headless",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
        *OFFLINE,
        "--hide-scrollbars",
        f"--user-data-dir={profile}",
        f"--window-size={width},{height}",
        *arguments,
        page.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
