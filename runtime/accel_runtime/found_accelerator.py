"""The accelerator that torch finds on this machine."""

from __future__ import annotations

import torch


def found_accelerator() -> torch.device | None:
    """None on a machine without one; torch 2.6 raises there when it is asked."""
    return torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
