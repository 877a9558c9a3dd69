"""Scripts before and after, for the tests of the conditions."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

from accel_migrate.check import Violation, violations
from accel_migrate.flow.version import Version
from accel_migrate.source import Source


def program(text: str, name: str = "train.py") -> Version:
    return Version(Source.from_bytes(Path(name), textwrap.dedent(text).encode()))


def found(before: str | Mapping[str, str], after: str | Mapping[str, str]) -> list[Violation]:
    """The violations in a rewritten script, or in a project of several files."""
    befores = {"train.py": before} if isinstance(before, str) else before
    afters = {"train.py": after} if isinstance(after, str) else after
    originals = [program(text, name) for name, text in befores.items()]
    results = {Path(name): program(text, name) for name, text in afters.items() if text != befores[name]}
    return list(violations(originals, results, {}))


def said(code: str, before: str | Mapping[str, str], after: str | Mapping[str, str]) -> list[str]:
    """What one condition says."""
    return [violation.message for violation in found(before, after) if violation.code == code]
