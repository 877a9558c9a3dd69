"""Asks about each change, as `git add -p` does."""

from __future__ import annotations

from accel_migrate.document import Document
from accel_migrate.plan import Change


class Prompt:
    def __call__(self, it: Document, change: Change) -> bool:
        raise NotImplementedError
