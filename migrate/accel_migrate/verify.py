"""The last look before anything is shown or written: the result parses, compiles, and has nothing more to migrate."""

from __future__ import annotations

import warnings

from accel_migrate.errors import MigrateError
from accel_migrate.source import Source


class BrokenResult(MigrateError):
    """The rewritten text is not what it should be: a fault of ours, and nothing was written."""


def check(source: Source, text: str) -> Source:
    """The rewritten file as a source that compiles."""
    data = source.to_bytes(text)
    result = Source.from_bytes(source.path, data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(result.tree, str(source.path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MigrateError) as error:
        raise BrokenResult(f"the rewritten file would not compile ({error}); please report this script") from error
    return result
