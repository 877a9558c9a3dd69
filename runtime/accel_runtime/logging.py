"""Loggers that speak on one process, or on all of them in turn."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import MutableMapping
from typing import Any

from accel_runtime.world import World, world_from


class ProcessLogger(logging.LoggerAdapter[logging.Logger]):
    """The main process speaks; with `main_process_only=False` all do, with `in_order=True` one after another."""

    def __init__(self, logger: logging.Logger, world: World) -> None:
        super().__init__(logger, {})
        self.world = world

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        everyone = not kwargs.pop("main_process_only", True)
        in_order = kwargs.pop("in_order", False)
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 2  # past this method and the one that speaks
        if not self.isEnabledFor(level):
            return
        if everyone and in_order:
            self._log_in_turn(level, msg, *args, **kwargs)
        elif everyone or self.world.is_main:
            self._speak(level, msg, *args, **kwargs)

    @functools.cache  # noqa: B019 a logger lives as long as the program
    def warning_once(self, *args: Any, **kwargs: Any) -> None:
        """A warning that is given once, however often the line runs."""
        self.warning(*args, **kwargs)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return (f"[RANK {self.world.rank}] {msg}" if self.world.size > 1 else msg), kwargs

    def _log_in_turn(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        import torch.distributed as dist

        kwargs["stacklevel"] += 1
        for rank in range(self.world.size):
            if rank == self.world.rank:
                self._speak(level, msg, *args, **kwargs)
            if dist.is_initialized():
                dist.barrier()

    def _speak(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        text, kwargs = self.process(msg, kwargs)  # type: ignore[assignment]
        self.logger.log(level, text, *args, **kwargs)


def get_logger(name: str, log_level: str | None = None) -> ProcessLogger:
    """A logger for this module; works before an Accelerator exists, too.

    >>> get_logger(__name__).info("ready", main_process_only=False)
    """
    logger = logging.getLogger(name)
    if log_level is not None:
        logger.setLevel(log_level.upper())
        logger.root.setLevel(log_level.upper())
    return ProcessLogger(logger, world_from(os.environ))


# The name by which scripts for Accelerate annotate it.
MultiProcessAdapter = ProcessLogger
