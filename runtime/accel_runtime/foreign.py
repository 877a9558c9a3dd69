"""Which code is not the script's: this package, the standard library, and whatever is installed."""

from __future__ import annotations

import sysconfig
from pathlib import Path

_FOLDERS = (str(Path(__file__).parent), *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))
# An environment may take packages from another one, whose folder only has the usual name.
_INSTALLED = tuple(str(Path("/", name, "x"))[:-1] for name in ("site-packages", "dist-packages"))


def is_foreign(filename: str) -> bool:
    return filename.startswith((*_FOLDERS, "<frozen")) or any(folder in filename for folder in _INSTALLED)
