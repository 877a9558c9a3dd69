"""The list of a checkpoint's files with their digests. It is written last: a folder that has one is complete."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

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
        text = path.read_bytes()
        content = json.loads(text)
        if content["manifest"]["format"] > FORMAT:
            raise CheckpointError(
                f"{path} has format {content['manifest']['format']} and this version reads {FORMAT}; "
                "update accel-migrate"
            )
        manifest = msgspec.convert(content["manifest"], Manifest)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing: the checkpoint was never finished, or is none") from None
    except (ValueError, KeyError, TypeError, RecursionError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read ({type(error).__name__}: {error}); it is damaged") from None
    if text != _text(manifest).encode():
        raise CheckpointError(f"{path} does not match its own digest; it is damaged")
    return manifest


def damage_of(folder: Path, file: Digested) -> str | None:
    """What is wrong with one file of the checkpoint, in one sentence."""
    path = folder / file.name
    try:
        found = digest_of(path) if path.stat().st_size == file.size else None
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    if found is None:
        return f"{path} has {path.stat().st_size} bytes and was saved with {file.size}; it is damaged"
    return None if found.sha256 == file.sha256 else f"{path} is not what was saved: its digest differs; it is damaged"


def _text(manifest: Manifest) -> str:
    """The whole file, byte for byte, so that none of it can change unnoticed."""
    content = json.dumps(asdict(manifest), indent=1)
    digest = hashlib.sha256(content.encode()).hexdigest()
    return f'{{"manifest": {content},\n"sha256": "{digest}"}}\n'
