"""A run under torch's profiler, with one trace for each process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from accel_runtime.errors import ConfigError
from accel_runtime.keywords import KwargsHandler


@dataclass(frozen=True)
class ProfileKwargs(KwargsHandler):
    """For `torch.profiler.profile`; `output_trace_dir` gets a file for each process."""

    activities: list[str] | None = None
    schedule_option: dict[str, int] | None = None
    on_trace_ready: Callable[..., Any] | None = None
    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False
    with_flops: bool = False
    with_modules: bool = False
    output_trace_dir: str | None = None


@contextmanager
def profiled(settings: ProfileKwargs, rank: int) -> Iterator[torch.profiler.profile]:
    """The profiler over the body; the trace is written when the body ends."""
    profiler = torch.profiler.profile(
        activities=_activities(settings.activities),
        schedule=torch.profiler.schedule(**settings.schedule_option) if settings.schedule_option else None,
        on_trace_ready=settings.on_trace_ready,
        record_shapes=settings.record_shapes,
        profile_memory=settings.profile_memory,
        with_stack=settings.with_stack,
        with_flops=settings.with_flops,
        with_modules=settings.with_modules,
    )
    with profiler:
        yield profiler
    if settings.output_trace_dir is not None:
        directory = Path(settings.output_trace_dir)
        directory.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(directory / f"profile_{rank}.json"))


def _activities(names: list[str] | None) -> list[Any] | None:
    if names is None:
        return None
    known = {name.lower(): kind for name, kind in torch.profiler.ProfilerActivity.__members__.items()}
    for name in names:
        if name.lower() not in known:
            raise ConfigError(f"activities={names!r}: {name!r} is not one of {', '.join(sorted(known))}")
    return [known[name.lower()] for name in names]
