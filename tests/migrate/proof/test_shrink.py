"""Constants that are cut for a proof: the same in every copy, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.errors import MigrateError
from accel_migrate.proof.shrink import Cut, parse, shrink

SCRIPT = """\
width, height = 256, 342  # of a frame
class Config:
    width: int = 512
depth = width = 1_000
name = "width = 7"
width = width * 2


def build(width=64):
    width = 3
    return width
"""


def test_a_number_is_cut_where_a_file_or_a_class_sets_it_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    shrink(Cut("width", "32"), tmp_path)
    expected = SCRIPT.replace("256, 342", "32, 342").replace("int = 512", "int = 32")
    assert (tmp_path / "train.py").read_text() == expected


def test_a_number_is_cut_where_a_dictionary_has_it(tmp_path: Path) -> None:
    text = 'def main():\n    settings = {"width": 128, "deep": {"width": 7}, "other": 3, **more, width: 9}\n'
    (tmp_path / "train.py").write_text(text)
    shrink(Cut("width", "32"), tmp_path)
    assert (tmp_path / "train.py").read_text() == text.replace("128", "32").replace(": 7", ": 32")


def test_what_no_file_sets_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text('width = make()\nheight = "3"\n')
    with pytest.raises(MigrateError, match="no file of the project sets height to a number"):
        shrink(Cut("height", "2"), tmp_path)


@pytest.mark.parametrize("text", ["width", "width=", "width=x", "2w=3", "a.b=3", "width=-1"])
def test_what_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(MigrateError, match="say which constant gets which number"):
        parse(text)


def test_whole_and_broken_numbers_are_taken() -> None:
    assert (parse("width=32"), parse("rate=0.5")) == (Cut("width", "32"), Cut("rate", "0.5"))
