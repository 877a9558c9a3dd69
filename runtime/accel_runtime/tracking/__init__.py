"""Experiment trackers: one small class each, imported when it is asked for."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from accel_runtime.errors import ConfigError, UsageError
from accel_runtime.unsupported import absent

TRACKERS = {
    "jsonl": "accel_runtime.tracking.jsonl:JsonLinesTracker",
    "mlflow": "accel_runtime.tracking.mlflow:MLflowTracker",
    "tensorboard": "accel_runtime.tracking.tensorboard:TensorBoardTracker",
    "wandb": "accel_runtime.tracking.wandb:WandBTracker",
}


# By this name Accelerate has them; what is put here can be chosen by its name.
LOGGER_TYPE_TO_CLASS: Any = TRACKERS


class LoggerType(StrEnum):
    """The trackers by name, for scripts that write `LoggerType.TENSORBOARD`."""

    ALL = "all"
    JSONL = "jsonl"
    MLFLOW = "mlflow"
    TENSORBOARD = "tensorboard"
    WANDB = "wandb"


class GeneralTracker(ABC):
    """One's own tracker: give it a name, make it a subclass, and pass it in `log_with`.

    It lives on the main process only.
    """

    name: str
    requires_logging_directory = False

    def start(self) -> None:  # noqa: B027 most begin when they are made
        """Begins; called by `init_trackers`, before anything is kept."""

    @property
    def tracker(self) -> Any:
        """The object of the tracking library."""
        return self

    @abstractmethod
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Keeps the hyperparameters of the run."""

    @abstractmethod
    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Keeps the values of one step."""

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint keeps, so that a resumed run goes on in the same record; None where that is nothing."""
        return None

    def resume(self, state: dict[str, Any]) -> None:  # noqa: B027 as `state`
        """Goes on where the checkpoint stood; what was told after it will be told again."""

    def finish(self) -> None:  # noqa: B027 many trackers have nothing to close
        """Closes what is open."""


Choice = str | GeneralTracker | type[GeneralTracker]


class Trackers:
    """The trackers of one Accelerator; on processes other than the main one there are none."""

    def __init__(self, log_with: Choice | Iterable[Choice] | None, active: bool, has_folder: bool = True) -> None:
        single = isinstance(log_with, (str, GeneralTracker, type)) or log_with is None
        choices: list[Any] = [log_with] if single else list(log_with)  # type: ignore[arg-type]
        if "all" in choices:
            choices = get_available_trackers()
        self.choices = [_checked(choice, has_folder) for choice in choices if choice is not None]
        self.active = active
        self.started: list[GeneralTracker] = []
        self._resumed: dict[str, dict[str, Any]] = {}

    def start(
        self,
        run: str,
        directory: Path | None,
        config: Mapping[str, Any] | None,
        settings: Mapping[str, Mapping[str, Any]],
    ) -> None:
        if not self.active:
            return
        for choice in self.choices:
            tracker = choice if isinstance(choice, GeneralTracker) else _built(choice, run, directory, settings)
            tracker.start()
            if config is not None:
                tracker.store_init_configuration(config)
            self.started.append(tracker)
        self._go_on()

    def state(self) -> dict[str, dict[str, Any]]:
        """What a checkpoint keeps, by the name of a tracker."""
        states = {tracker.name: tracker.state() for tracker in self.started}
        return {name: state for name, state in states.items() if state is not None}

    def resume(self, states: dict[str, dict[str, Any]]) -> None:
        """Trackers go on where the checkpoint stood, whether they have been started or will be."""
        self._resumed = dict(states)
        self._go_on()

    def _go_on(self) -> None:
        for tracker in self.started:
            if tracker.name in self._resumed:
                tracker.resume(self._resumed.pop(tracker.name))

    def log(self, values: Mapping[str, Any], step: int | None, settings: Mapping[str, Mapping[str, Any]]) -> None:
        for tracker in self.started:
            tracker.log(values, step=step, **settings.get(tracker.name, {}))

    def get(self, name: str, unwrap: bool) -> Any:
        if not self.started:
            return Silent()
        for tracker in self.started:
            if tracker.name == name:
                return tracker.tracker if unwrap else tracker
        names = ", ".join(tracker.name for tracker in self.started)
        raise UsageError(f"there is no tracker {name!r}; init_trackers started {names}")

    def finish(self) -> None:
        for tracker in self.started:
            tracker.finish()
        self.started.clear()


class Silent:
    """Stands in for a tracker that is not there, and takes whatever it is told."""

    def __getattr__(self, name: str) -> Silent:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Silent:
        for value in (*args, *kwargs.values()):
            if hasattr(value, "full_tensor"):
                # The tracker of another process takes the numbers of this sharded tensor, which all must gather.
                value.detach().cpu().numpy()
        return self

    def __bool__(self) -> bool:
        return False


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings with their keys joined by a slash."""
    joined: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            joined.update(flat(value, f"{prefix}{key}/"))
        else:
            joined[f"{prefix}{key}"] = value
    return joined


def plain(value: Any) -> Any:
    """A number as a number, whatever held it."""
    return value.item() if hasattr(value, "item") and getattr(value, "size", 1) != 0 and _is_single(value) else value


def _is_single(value: Any) -> bool:
    return int(value.numel() if hasattr(value, "numel") else value.size) == 1


def _checked(choice: Choice, has_folder: bool) -> Choice:
    if isinstance(choice, str) and choice not in TRACKERS:
        raise ConfigError(
            f"log_with={choice!r} is not one of {', '.join(TRACKERS)}; for another tracker pass a GeneralTracker"
        )
    kind = tracker_class(choice) if isinstance(choice, str) else choice
    if isinstance(kind, type) and kind.requires_logging_directory and not has_folder:
        raise ConfigError(
            f"Logging with `{kind.name}` requires a `logging_dir`, for it writes files: pass project_dir= to the Accelerator"
        )
    return choice


def _built(choice: Any, run: str, directory: Path | None, settings: Mapping[str, Mapping[str, Any]]) -> GeneralTracker:
    choice = tracker_class(choice) if isinstance(choice, str) else choice
    if choice.requires_logging_directory:
        return choice(run, directory, **settings.get(choice.name, {}))  # type: ignore[no-any-return]
    return choice(run, **settings.get(choice.name, {}))  # type: ignore[no-any-return]


def tracker_class(name: str) -> type[GeneralTracker]:
    """The class that this name chooses: one of ours, imported now, or one that was registered."""
    found: Any = TRACKERS[name]
    if isinstance(found, str):
        module, _, kind = found.partition(":")
        found = getattr(import_module(module), kind)
    return found  # type: ignore[no-any-return]


def register_tracker_class(tracker_class: type[GeneralTracker]) -> None:
    """Makes `log_with=tracker_class.name` choose this class.

    >>> register_tracker_class(MyTracker)
    >>> accelerator = Accelerator(log_with=MyTracker.name)
    """
    if not (isinstance(tracker_class, type) and issubclass(tracker_class, GeneralTracker)):
        raise ConfigError(f"register_tracker_class takes a subclass of GeneralTracker, and got {tracker_class!r}")
    if not isinstance(getattr(tracker_class, "name", None), str):
        raise ConfigError(f"{tracker_class.__name__} has no name, by which log_with would choose it")
    if "requires_logging_directory" not in {name for kind in tracker_class.__mro__[:-3] for name in vars(kind)}:
        raise ConfigError(
            f"{tracker_class.__name__} does not say whether it needs a folder; set requires_logging_directory"
        )
    if tracker_class.name in TRACKERS:
        warnings.warn(f"{tracker_class.name!r} chose another tracker until now", UserWarning, stacklevel=2)
    LOGGER_TYPE_TO_CLASS[tracker_class.name] = tracker_class


def on_main_process(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a tracker; trackers live on the main process only, so nothing has to be left out."""
    return function


def get_available_trackers() -> list[str]:
    """Those whose packages are installed."""
    return [name for name in TRACKERS if name == "jsonl" or not isinstance(TRACKERS[name], str) or find_spec(name)]


def __getattr__(name: str) -> Any:
    ours = {place.partition(":")[2]: key for key, place in TRACKERS.items() if isinstance(place, str)}
    return tracker_class(ours[name]) if name in ours else absent(__name__)(name)
