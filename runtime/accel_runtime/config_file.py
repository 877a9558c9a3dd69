"""Config files: where they are looked for, and what they may hold.

`accel.yaml` in the working folder comes before the user's own file; ACCEL_CONFIG names a file in place of the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accel_runtime.errors import ConfigError
from accel_runtime.options import Layer, file_layer, settle
from accel_runtime.peer_config import is_peer_config, translated

PROJECT_FILE = "accel.yaml"
VARIABLE = "ACCEL_CONFIG"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file that was found; `notes` say what of it has no meaning here."""

    path: Path
    values: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def layer(self) -> Layer:
        return file_layer(str(self.path), self.values)


def config_files(environ: Mapping[str, str], folder: Path = Path()) -> list[ConfigFile]:
    """The config files of a run, the deciding one first."""
    named = environ.get(VARIABLE)
    if named and not Path(named).is_file():
        raise ConfigError(f"{named}: there is no such config file; `accel config --file {named}` writes one")
    paths = [Path(named) if named else folder / PROJECT_FILE, user_file(environ)]
    return [read_config(path) for path in paths if path.is_file()]


def user_file(environ: Mapping[str, str]) -> Path:
    """The config file of this user, for all projects."""
    if home := environ.get("XDG_CONFIG_HOME"):
        return Path(home) / "accel" / "config.yaml"
    import platformdirs

    return platformdirs.user_config_path("accel") / "config.yaml"


def read_config(path: Path) -> ConfigFile:
    """The keys of a file, checked; a file of Accelerate is put into ours."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: is not YAML: {error.problem}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if content is None:
        raise ConfigError(f"{path}: is empty; delete it, or let `accel config --file {path}` write it")
    if not isinstance(content, dict):
        raise ConfigError(
            f"{path}: holds a {type(content).__name__}, expected keys with values such as num_processes: 2"
        )
    content = {str(key): value for key, value in content.items()}
    if is_peer_config(content):
        ours = translated(content, str(path))
        found = ConfigFile(path, ours.values, ours.notes)
    else:
        found = ConfigFile(path, {key: value for key, value in content.items() if value is not None})
    settle([found.layer()])
    return found


def write_config(path: Path, values: Mapping[str, Any]) -> None:
    """Write the keys in the order given; the file is replaced whole or not at all."""
    import yaml

    checked = settle([file_layer(str(path), values)]).settings
    text = yaml.safe_dump({key: _plain(getattr(checked, key)) for key in values}, sort_keys=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".tmp")
    beside.write_text("# How training runs here; `accel config --show` explains each value.\n" + text, encoding="utf-8")
    beside.replace(path)


def _plain(value: Any) -> Any:
    """As a person would write it: a list of names, numbers without quotes."""
    if isinstance(value, tuple):
        return list(value)
    return int(value) if isinstance(value, str) and value.isdecimal() else value
