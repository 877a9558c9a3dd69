"""Every value that a run can be configured with, and where each came from.

One order of precedence: argument in the script, flag, environment (`ACCEL_` and the key in capitals), project
config, user config, detection. Flags reach the script's processes through the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from accel_runtime.errors import ConfigError

Precision = Literal["no", "fp16", "bf16", "fp8"]
StrategyName = Literal["ddp", "fsdp", "deepspeed"]

PREFIX = "ACCEL_"


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the Accelerator needs to know before it looks at the machine. None: not said, so detected."""

    cpu: bool = False
    mixed_precision: Precision = "no"
    gradient_accumulation_steps: int = 1
    split_batches: bool = False
    strategy: StrategyName = "ddp"
    dynamo_backend: str | None = None
    timeout: float | None = None  # seconds a collective may take
    debug: bool = False


def options_from(environ: Mapping[str, str], arguments: Mapping[str, Any]) -> Options:
    """Arguments of the script over the environment over the defaults; None in `arguments` means not given."""
    said = {key: environ[PREFIX + key.upper()] for key in Options.__struct_fields__ if PREFIX + key.upper() in environ}
    given = {key: value for key, value in arguments.items() if value is not None}
    try:
        return msgspec.convert({**said, **given}, Options, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{error}; mixed_precision is one of {', '.join(get_args(Precision))}") from error
