"""`release_check.py v1.2.3`: whether this tag may be published; prints what is missing and ends with 1."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def missing(tag: str, root: Path = ROOT) -> list[str]:
    """What must be done before this tag is a release."""
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    changes = (root / "CHANGELOG.md").read_text()
    troubles = []
    if tag != f"v{version}":
        troubles.append(f"the tag is {tag} and pyproject.toml has version {version}")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        troubles.append(f"CHANGELOG.md has no heading `## [{version}] - YEAR-MONTH-DAY`")
    return troubles


if __name__ == "__main__":
    found = missing(*sys.argv[1:])
    print("\n".join(found) or "ready")
    sys.exit(bool(found))
