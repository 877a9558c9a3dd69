"""What the user asked for: the command line over [tool.accel-migrate] of pyproject.toml over the defaults."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel_migrate.pipeline import Settings

TARGETS = ("accel_runtime", "accelerate")
PRECISIONS = ("no", "fp16", "bf16", "fp8")
PRINTS = ("launcher", "once")
FORMATS = ("full", "concise", "json", "sarif", "github", "markdown")
COLORS = ("auto", "always", "never")
STANDARD_INPUT = Path("-")


@dataclass(frozen=True)
class Options:
    """One run. None, or nothing in a list, means that the command line left it to the configuration."""

    paths: tuple[Path, ...] = ()
    diff: bool = False
    check: bool = False
    interactive: bool = False
    output: Path | None = None
    stdin_filename: Path | None = None
    target: str | None = None
    keep_device: bool | None = None
    mixed_precision: str | None = None
    prints: str | None = None
    unsafe_fixes: bool | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    jobs: int | None = None
    time_limit: float | None = None
    output_format: str | None = None
    html: Path | None = None
    statistics: bool = False
    color: str = "auto"
    quiet: bool = False
    verbose: bool = False
    verify: bool = False
    write_if_proven: bool = False
    steps: int = 20
    processes: int = 2
    python: str | None = None
    timeout: float = 600.0
    module: str | None = None
    data: tuple[Path, ...] = ()
    on_cpu: bool = False
    stand_ins: bool = False
    shape: tuple[str, ...] = ()
    shrink: tuple[str, ...] = ()
    observe: bool = False
    facts: Path | None = None
    arguments: tuple[str, ...] = ()  # of the script that is verified

    @property
    def writes(self) -> bool:
        return not (self.diff or self.check)

    @property
    def reads_stdin(self) -> bool:
        return self.paths == (STANDARD_INPUT,)

    def over(self, configuration: dict[str, Any]) -> Options:
        """These options, with what is still open taken from the configuration."""
        unset = {field.name for field in fields(self) if getattr(self, field.name) in (None, ())}
        return replace(self, **{name: value for name, value in configuration.items() if name in unset})

    def settings(self) -> Settings:
        from accel_migrate.pipeline import Settings

        return Settings(
            target=self.target or TARGETS[0],
            keep_device=bool(self.keep_device),
            mixed_precision=self.mixed_precision,
            unsafe_fixes=bool(self.unsafe_fixes),
            prints=self.prints,
        )
