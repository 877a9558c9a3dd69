"""Comparing versions, as Accelerate's functions do."""

from __future__ import annotations

import operator
from importlib.metadata import version

import torch
from torch.torch_version import TorchVersion

_OPERATIONS = {
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    "<": operator.lt,
}


def compare_versions(library_or_version: object, operation: str, requirement_version: str) -> bool:
    """Whether the version of an installed package, or one that was parsed, stands so to another: `("torch", ">=", "2.6")`."""
    if operation not in _OPERATIONS:
        raise ValueError(f"{operation!r} compares nothing; use one of {', '.join(_OPERATIONS)}")
    mine = version(library_or_version) if isinstance(library_or_version, str) else str(library_or_version)
    # Torch brings what compares versions; the package for it need not be installed.
    return bool(_OPERATIONS[operation](TorchVersion(mine), requirement_version))


def is_torch_version(operation: str, version: str) -> bool:
    """Whether torch's own version stands so to another, whatever build it is."""
    return bool(_OPERATIONS[operation](TorchVersion(str(torch.__version__).partition("+")[0]), version))


__all__ = ["compare_versions", "is_torch_version"]
