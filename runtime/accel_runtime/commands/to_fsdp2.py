"""Rewrites a config file of Accelerate from FSDP1 to FSDP2, for its own launcher; here both are read as they are."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accel_runtime.errors import ConfigError
from accel_runtime.unsupported import absent

logger = logging.getLogger(__name__)

# Keys that FSDP2 has no use for.
GONE = ("fsdp_backward_prefetch", "fsdp_forward_prefetch", "fsdp_sync_module_states", "fsdp_use_orig_params")
# What FSDP1 calls a strategy is whether weights are freed between forward and backward.
RESHARDS = {
    "FULL_SHARD": True,
    "HYBRID_SHARD": True,
    "SHARD_GRAD_OP": False,
    "HYBRID_SHARD_ZERO2": False,
    "NO_SHARD": False,
}
NAMES = {"fsdp_sharding_strategy": "fsdp_reshard_after_forward"}


def convert_config_to_fsdp2(config: dict[str, Any]) -> dict[str, Any]:
    """The same configuration in the keys of FSDP2; what was FSDP2, or not FSDP at all, stays as it is."""
    settings: Mapping[str, Any] = config.get("fsdp_config") or {}
    if not settings:
        return config
    if settings.get("fsdp_version", 1) == 2:
        logger.warning("Config already specifies FSDP2, skipping conversion...")
        return config
    for key in (key for key in settings if key in GONE):
        logger.warning(f"{key} says nothing to FSDP2 and is left out")
    kept = {NAMES.get(key, key): value for key, value in settings.items() if key not in GONE}
    resharding = kept.get("fsdp_reshard_after_forward")
    if resharding is not None:
        kept["fsdp_reshard_after_forward"] = RESHARDS.get(resharding, resharding)
    return {**config, "fsdp_config": {**kept, "fsdp_version": 2}}


def load_config(config_file: str) -> dict[str, Any]:
    import yaml

    content: dict[str, Any] | None = yaml.safe_load(Path(config_file).read_text(encoding="utf-8"))
    if not content:
        raise ConfigError(f"{config_file}: is empty")
    return content


def to_fsdp2_command_parser(subparsers: Any = None) -> argparse.ArgumentParser:
    about = "Rewrite a config file of Accelerate from FSDP1 to FSDP2."
    parser: argparse.ArgumentParser = (
        argparse.ArgumentParser(description=about)
        if subparsers is None
        else subparsers.add_parser("to-fsdp2", description=about)
    )
    parser.add_argument("--config_file", "--config-file", required=True, help="The file to convert.")
    parser.add_argument("--output_file", "--output-file", help="Where to write the result.")
    parser.add_argument("--overwrite", action="store_true", help="Replace a file that is there.")
    parser.set_defaults(func=to_fsdp2_command)
    return parser


def to_fsdp2_command(args: argparse.Namespace) -> None:
    import yaml

    if not Path(args.config_file).exists():
        raise FileNotFoundError(f"{args.config_file}: there is no such config file")
    if not args.overwrite and args.output_file is None:
        raise ConfigError("name the file to write with --output_file, or pass --overwrite")
    output = args.output_file or args.config_file
    if not args.overwrite and Path(output).exists():
        raise FileExistsError(f"{output} is there already; pass --overwrite to replace it")
    Path(output).write_text(yaml.safe_dump(convert_config_to_fsdp2(load_config(args.config_file))), encoding="utf-8")


__all__ = ["convert_config_to_fsdp2", "load_config", "to_fsdp2_command", "to_fsdp2_command_parser"]

__getattr__ = absent(__name__)
