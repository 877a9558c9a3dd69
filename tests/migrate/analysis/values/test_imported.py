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


@pytest.mark.parametrize(
    ("other", "starts"),
    [
        ("from vectors import build\nnet = build()\nnet.fit()\n", False),
        ("import vectors\nvectors.fit()\n", True),
        ("import fit, vectors\nnet = vectors.build()\n", False),
        ("from vectors import *\nfit()\n", True),
    ],
)
def test_a_method_of_the_same_name_starts_no_training_of_another_file(other: str, starts: bool):
    text = "def build():\n    return 1\ndef fit():\n    pass\nif __name__ == '__main__':\n    fit()\n"
    texts = {"vectors.py": text, "tagger.py": other}
    project = Program([Module(Source.from_bytes(Path(name), text.encode())) for name, text in texts.items()])
    vectors, tagger = project.modules
    assert (tagger in loaded_with(project, vectors, vectors.tree.body[1].body[0])) is starts
