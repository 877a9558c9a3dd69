"""Files that are made up for a run have the sizes and types that were asked for, and are the same each time."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
from accel_migrate.errors import MigrateError
from accel_migrate.proof.made_files import make, parse


@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "int32", "uint8"])
def test_an_array_is_what_numpy_reads(kind: str, tmp_path: Path) -> None:
    make(parse(f"data/x.npy=5x3x2:{kind}"), tmp_path)
    array = numpy.load(tmp_path / "data/x.npy")
    assert (array.shape, array.dtype) == ((5, 3, 2), numpy.dtype(kind))
    assert len(numpy.unique(array)) > 1


def test_an_array_of_one_size_and_no_type(tmp_path: Path) -> None:
    make(parse("y.npy=7"), tmp_path)
    assert numpy.load(tmp_path / "y.npy").shape == (7,)


def test_images_are_what_pillow_reads(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    make(parse("images/=3x8x6x3"), tmp_path)
    names = sorted(path.name for path in (tmp_path / "images").iterdir())
    assert names == ["000000.png", "000001.png", "000002.png"]
    with image.open(tmp_path / "images" / names[0]) as picture:
        assert (picture.size, picture.mode) == ((6, 8), "RGB")
        assert len(set(picture.tobytes())) > 1


def test_tables_and_texts(tmp_path: Path) -> None:
    make(parse("a.csv=4:user,item"), tmp_path)
    make(parse("b.txt=9"), tmp_path)
    header, *rows = (tmp_path / "a.csv").read_text().splitlines()
    assert header == "user,item" and len(rows) == 4 and all(row.count(",") == 1 for row in rows)
    assert len((tmp_path / "b.txt").read_text().splitlines()) == 9


def test_what_is_there_stays_and_what_is_made_is_the_same_each_time(tmp_path: Path) -> None:
    (tmp_path / "there.txt").write_text("mine")
    make(parse("there.txt=9"), tmp_path)
    assert (tmp_path / "there.txt").read_text() == "mine"
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "mine.png").write_bytes(b"")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / ".keep").write_bytes(b"")
    for folder in ("images", "kept"):
        make(parse(f"{folder}/=2x4x4x3"), tmp_path)
    assert [each.name for each in (tmp_path / "images").iterdir()] == ["mine.png"]
    assert len(list((tmp_path / "kept").glob("*.png"))) == 2, "a folder that a repository only keeps is empty"
    for folder in ("one", "two"):
        make(parse("x.npy=4x4"), tmp_path / folder)
    assert (tmp_path / "one/x.npy").read_bytes() == (tmp_path / "two/x.npy").read_bytes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x.npy", "say what to make as PATH=SIZES"),
        ("/etc/x.npy=3", "inside the project"),
        ("../x.npy=3", "inside the project"),
        ("x.npy=99999x99999", "numbers; at most"),
        ("x.npy=3:complex", "made are"),
        ("x.pkl=3", "made are"),
        ("x.csv=3", "made are"),
        ("images/=3x8", "made are"),
    ],
)
def test_what_cannot_be_made_is_said(text: str, message: str) -> None:
    with pytest.raises(MigrateError, match=message):
        parse(text)
