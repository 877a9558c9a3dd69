"""Which files a training loads, and in which order they are gone through."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.analysis.values.imported import brought_by, loaded_with
from accel_migrate.flow.program import Program
from accel_migrate.flow.scopes import Module
from accel_migrate.source import Source

NAMES = [f"part_{letter}" for letter in "hbfaegcd"]


@pytest.mark.parametrize("imported", ["import {}", "from {} import x", "from . import {}", "from .{} import *"])
def test_goes_through_all_that_is_imported_in_the_order_of_the_imports(imported: str):
    lines = [imported.format(name) for name in NAMES]  # under one name, too: each of them is loaded
    texts = {"train.py": "\n".join(lines), **{f"{name}.py": "x = 1\n" for name in NAMES}}
    project = Program([Module(Source.from_bytes(Path(name), text.encode())) for name, text in texts.items()])
    train = project.modules[0]
    assert [module.source.path.stem for module in brought_by(project, [train])] == NAMES
    assert [module.source.path.stem for module in loaded_with(project, train)] == ["train", *NAMES]
