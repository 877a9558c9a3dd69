"""What the user asked for."""

from __future__ import annotations

from dataclasses import dataclass

from accel_migrate.facts import Facts


@dataclass(frozen=True)
class Settings:
    target: str = "accel_runtime"  # the package that scripts import Accelerator from: accel_runtime or accelerate
    keep_device: bool = False  # leave the moves, and let `device` be the Accelerator's
    mixed_precision: str | None = None
    unsafe_fixes: bool = False  # also apply changes marked for review
    prints: str | None = None  # "launcher": it shows one process of each machine; "once": the script prints once itself
    facts: Facts | None = None  # what a run of the script showed

    @property
    def prints_once(self) -> bool:
        """Accelerate's launcher shows what every process prints."""
        return (self.prints or ("once" if self.target == "accelerate" else "launcher")) == "once"


DEFAULTS = Settings()
