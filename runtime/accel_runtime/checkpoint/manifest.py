"""The list of a checkpoint's files with their digests. It is written last: a folder that has one is complete."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec

from accel_runtime.checkpoint.files import check_name, inside, read_text
from accel_runtime.checkpoint.tensors import Digested, digest_of, write_text
from accel_runtime.errors import CheckpointError

NAME = "manifest.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """`step`, `epoch` and `batch` say where the training stood; `saved_at` is in seconds since 1970."""

    step: int
    epoch: int
    batch: int
    processes: int
    saved_at: float
    files: tuple[Digested, ...]
    format: int = FORMAT

    def names(self) -> list[str]:
        return [file.name for file in self.files]


def write_manifest(folder: Path, manifest: Manifest) -> None:
    write_text(folder / NAME, _text(manifest))


def read_manifest(folder: Path) -> Manifest:
    """The manifest, or a refusal: a bit of it may be flipped as well."""
    path = folder / NAME
    try:
        text = read_text(path)
        content = json.loads(text)
        if content["manifest"]["format"] > FORMAT:
            raise CheckpointError(
                f"{path} has format {content['manifest']['format']} and this version reads {FORMAT}; "
                "update accel-migrate"
            )
        manifest = msgspec.convert(content["manifest"], Manifest)
    except CheckpointError:
        raise
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing: the checkpoint was never finished, or is not one") from None
    except (ValueError, KeyError, TypeError, RecursionError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read ({type(error).__name__}: {error}); it is damaged") from None
    if text != _text(manifest):
        raise CheckpointError(f"{path} does not match its own digest; it is damaged")
    _check(path, manifest)
    return manifest


def damage_of(folder: Path, file: Digested) -> str | None:
    """What is wrong with one file of the checkpoint, in one sentence."""
    try:
        path = inside(folder, file.name)
        size = path.stat().st_size
        if size != file.size:
            return f"{path} has {size} bytes and was saved with {file.size}; it is damaged"
        found = digest_of(path)
    except CheckpointError as error:
        return str(error)
    except OSError as error:
        return f"{folder / file.name} cannot be read: {error.strerror}"
    return None if found.sha256 == file.sha256 else f"{path} is not what was saved: its digest differs; it is damaged"


def _check(path: Path, manifest: Manifest) -> None:
    """Refuses numbers and names that no save writes, before anything is done with them."""
    names = [check_name(name) for name in manifest.names()]
    numbers = (manifest.step, manifest.epoch, manifest.batch, manifest.processes - 1, *(f.size for f in manifest.files))
    if len(set(names)) != len(names) or NAME in names or min(numbers) < 0 or max(numbers) >= 1 << 63:
        raise CheckpointError(f"{path} does not list a checkpoint as save_state writes it")
    size, disk = sum(file.size for file in manifest.files), shutil.disk_usage(path.parent).total
    # Some network disks do not tell their size.
    if size > disk > 0:
        raise CheckpointError(f"{path} lists {size} bytes, which is more than its disk of {disk} bytes holds")


def _text(manifest: Manifest) -> str:
    """The whole file, byte for byte, so that none of it can change unnoticed."""
    content = json.dumps(msgspec.to_builtins(manifest), indent=1)
    digest = hashlib.sha256(content.encode()).hexdigest()
    return f'{{"manifest": {content},\n"sha256": "{digest}"}}\n'
