"""`accel test` by Accelerate's names."""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import Any

from accel_runtime.unsupported import absent


def test_command_parser(subparsers: Any = None) -> argparse.ArgumentParser:
    about = "Check this set-up by starting it."
    parser: argparse.ArgumentParser = (
        argparse.ArgumentParser(description=about)
        if subparsers is None
        else subparsers.add_parser("test", description=about)
    )
    parser.add_argument("--config_file", "--config-file", help="Read this file instead of accel.yaml.")
    parser.set_defaults(func=test_command)
    return parser


def test_command(args: argparse.Namespace) -> None:
    named = ["--config-file", args.config_file] if args.config_file else []
    subprocess.run([sys.executable, "-m", "accel_runtime", "test", *named], check=True)


__all__ = ["test_command", "test_command_parser"]

__getattr__ = absent(__name__)
