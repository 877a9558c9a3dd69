"""Which file a module's name means."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.flow.lookup import Lookup, split
from accel_migrate.flow.scopes import Module
from accel_migrate.source import Source

FILES = (
    "kit/deep/train.py",
    "kit/__init__.py",
    "kit/rows.py",
    "kit/deep/rows.py",
    "lib/help.py",
    "a/twice.py",
    "b/twice.py",
)


@pytest.mark.parametrize(
    ("dotted", "file"),
    [
        ("rows", ("kit/deep/rows.py", None)),  # beside the importer, before what is further out
        ("kit.rows.batches", ("kit/rows.py", "batches")),
        ("..rows", ("kit/rows.py", None)),
        ("..batches", ("kit/__init__.py", "batches")),
        ("kit", ("kit/__init__.py", None)),
        ("help.save", ("lib/help.py", "save")),  # the only one of its name, and a folder is put on the path
        ("twice", None),
        ("datasets", None),
        ("rows.batches.first", None),
    ],
)
def test_a_name_leads_to_a_file_and_to_what_is_named_in_it(dotted: str, file: tuple[str, str | None] | None) -> None:
    files = (*FILES, "lib/datasets.py")  # a library of that name is what an import means
    modules = [Module(Source.from_bytes(Path(name), b"import sys\nsys.path.append('lib')\n")) for name in files]
    found = Lookup(modules).locate(modules[0], dotted)
    assert (found and (str(found[0].path), found[1])) == file


def test_a_file_elsewhere_is_not_meant_where_nobody_changes_the_path() -> None:
    modules = [Module(Source.from_bytes(Path(name), b"")) for name in FILES]
    assert Lookup(modules).locate(modules[0], "help.save") is None


def test_dots_belong_to_the_module() -> None:
    assert [split(each) for each in ("a.b.c", "..a", ".", "a")] == [("a.b", "c"), ("..", "a"), (".", ""), ("", "a")]
