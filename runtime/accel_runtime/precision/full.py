"""Full precision: nothing is added to what torch does."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from accel_runtime.handlers import AutocastKwargs
from accel_runtime.precision import Precision


class Full(Precision):
    name = "no"

    def autocast(self, settings: AutocastKwargs | None = None) -> AbstractContextManager[Any]:
        return nullcontext()
