"""Files that a script reads and this disk lacks, made up in the copy that is run: `--shape data/train.npy=1000x3x32x32`.

What a name ends in says what is made: .npy arrays, .txt and .csv tables of words and numbers, a folder of images.
"""

from __future__ import annotations

import random
import re
import struct
import zlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from accel_migrate.errors import MigrateError
from accel_migrate.proof.recorder.stand_ins.made_up import sentence

LARGEST = 2**28  # numbers
FORM = re.compile(r"(?P<path>[^=]+)=(?P<sizes>\d+(?:x\d+)*)(?::(?P<rest>.+))?")
TYPES = {  # of numpy: its code, and the code of `array`
    "float32": ("<f4", "f"),
    "float64": ("<f8", "d"),
    "int64": ("<i8", "q"),
    "int32": ("<i4", "i"),
    "uint8": ("|u1", "B"),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A file that is to be made: its sizes, and its type (of an array) or the names of its columns (of a table)."""

    path: Path
    sizes: tuple[int, ...]
    rest: str = ""

    @property
    def told(self) -> str:
        return f"made up, {'x'.join(map(str, self.sizes))}"


def parse(text: str) -> Shape:
    """`PATH=1000x3x32x32:float32`, `PATH.csv=500:user,item,rating`, `FOLDER/=100x64x64x3`."""
    found = FORM.fullmatch(text)
    if found is None:
        raise MigrateError(
            f"--shape {text}: say what to make as PATH=SIZES, such as data/train.npy=1000x3x32x32:float32"
        )
    shape = Shape(Path(found["path"]), tuple(map(int, found["sizes"].split("x"))), found["rest"] or "")
    if shape.path.is_absolute() or ".." in shape.path.parts:
        raise MigrateError(f"--shape {text}: name a path inside the project, relative to the current folder")
    if prod(shape.sizes) > LARGEST:
        raise MigrateError(f"--shape {text}: that is {prod(shape.sizes):,} numbers; at most {LARGEST:,} are made")
    _maker(shape, found["path"].endswith("/"))
    return shape


def make(shape: Shape, folder: Path) -> None:
    """Write it into a copy of the project, unless it is there; the same bytes each time."""
    target = folder / shape.path
    if not target.exists() or (target.is_dir() and all(each.name.startswith(".") for each in target.iterdir())):
        target.parent.mkdir(parents=True, exist_ok=True)
        _maker(shape, not shape.path.suffix)(shape, target, random.Random(str(shape.path)))


Maker = Callable[[Shape, Path, random.Random], None]


def _maker(shape: Shape, is_folder: bool) -> Maker:
    suffix = shape.path.suffix.lower()
    if is_folder and len(shape.sizes) == 4 and shape.sizes[3] in (1, 3):
        return _images
    if suffix == ".npy" and (shape.rest or "float32") in TYPES:
        return _array
    if suffix in (".csv", ".tsv") and len(shape.sizes) == 1 and shape.rest:
        return _table
    if suffix == ".txt" and len(shape.sizes) == 1:
        return _text
    raise MigrateError(
        f"--shape {shape.path}: made are NAME.npy=SIZES[:{'|'.join(TYPES)}], NAME.csv=ROWS:COLUMN,COLUMN, NAME.txt=LINES, and "
        "FOLDER/=COUNTxHEIGHTxWIDTHx3"
    )


def _array(shape: Shape, target: Path, dice: random.Random) -> None:
    code, kind = TYPES[shape.rest or "float32"]
    count = prod(shape.sizes)
    if kind in "fd":
        numbers = array(kind, (dice.gauss(0.0, 1.0) for _ in range(count)))
    else:
        numbers = array(kind, (dice.randrange(2 if kind != "B" else 256) for _ in range(count)))
    sizes = "".join(f"{size}, " for size in shape.sizes)
    header = f"{{'descr': '{code}', 'fortran_order': False, 'shape': ({sizes}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    target.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + numbers.tobytes())


def _table(shape: Shape, target: Path, dice: random.Random) -> None:
    columns = shape.rest.split(",")
    mark = "\t" if target.suffix == ".tsv" else ","
    rows = [mark.join(columns), *[mark.join(str(dice.randrange(10)) for _ in columns) for _ in range(shape.sizes[0])]]
    target.write_text("\n".join(rows) + "\n", "utf-8")


def _text(shape: Shape, target: Path, dice: random.Random) -> None:
    lines = (sentence(dice) for _ in range(shape.sizes[0]))
    target.write_text("\n".join(lines) + "\n", "utf-8")


def _images(shape: Shape, target: Path, dice: random.Random) -> None:
    count, height, width, channels = shape.sizes
    target.mkdir(exist_ok=True)
    for number in range(count):
        (target / f"{number:06}.png").write_bytes(_png(height, width, channels, dice))


def _png(height: int, width: int, channels: int, dice: random.Random) -> bytes:
    rows = b"".join(b"\0" + dice.randbytes(width * channels) for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    parts: Sequence[tuple[bytes, bytes]] = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
