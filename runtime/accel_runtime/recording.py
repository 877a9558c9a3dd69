"""What a run tells its trackers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accel_runtime.tracking import GeneralTracker, Trackers


class Recording:
    """The methods of an Accelerator that speak to trackers; they live on the main process."""

    _trackers: Trackers

    @property
    def logging_dir(self) -> str | Path | None:
        """The folder of the trackers' files."""
        raise NotImplementedError

    @property
    def log_with(self) -> list[Any]:
        """The trackers that were chosen."""
        return self._trackers.choices

    @property
    def trackers(self) -> list[GeneralTracker]:
        """The trackers that were started; empty on other processes than the main one."""
        return self._trackers.started

    def init_trackers(
        self,
        project_name: str,
        config: Mapping[str, Any] | None = None,
        init_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Starts the trackers of `log_with`; `init_kwargs` holds settings by the name of a tracker."""
        directory = Path(self.logging_dir) if self.logging_dir is not None else None
        self._trackers.start(project_name, directory, config, init_kwargs or {})

    def log(
        self,
        values: Mapping[str, Any],
        step: int | None = None,
        log_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Tells every tracker the values of a step."""
        self._trackers.log(values, step, log_kwargs or {})

    def get_tracker(self, name: str, unwrap: bool = False) -> Any:
        """One tracker, or with `unwrap` the object of its library; where none was started a stand-in that takes anything."""
        return self._trackers.get(name, unwrap)
