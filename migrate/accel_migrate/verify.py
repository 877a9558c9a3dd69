"""The last look before anything is shown or written: the result parses, compiles, and has nothing more to migrate."""

from __future__ import annotations

import ast
import warnings

from accel_migrate.errors import MigrateError, SourceError
from accel_migrate.source import Source


class BrokenResult(MigrateError):
    """The rewritten text is not what it should be: a fault of ours, and nothing was written."""


def check(source: Source, text: str) -> Source:
    """The rewritten file as a source that compiles."""
    result = Source.from_bytes(source.path, source.to_bytes(text))
    try:
        _compile(result)
    except (SyntaxError, ValueError, MigrateError) as error:
        try:
            _compile(source)
        except (SyntaxError, ValueError) as own:
            raise SourceError(f"does not compile: {getattr(own, 'msg', own)}", getattr(own, "lineno", None)) from own
        raise BrokenResult(f"the rewritten file would not compile ({error}); please report this script") from error
    return result


def _compile(source: Source) -> None:
    # A notebook may await outside of any function.
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if source.path.suffix == ".ipynb" else 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile(source.tree, str(source.path), "exec", flags, dont_inherit=True)
