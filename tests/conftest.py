"""What all tests need of the machine."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

_BF16_PRODUCT = "import torch; torch.nn.Linear(64, 64).bfloat16()(torch.zeros(64, 64, dtype=torch.bfloat16))"


def pytest_configure(config: pytest.Config) -> None:
    """One thread for each process, which the cores have enough of; and no AMX where it is only announced."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Hundreds of processes are started: what one has compiled is there for the next.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    _keep_from_amx(config)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: no collection of garbage need go through it again."""
    gc.collect()
    gc.freeze()


def _keep_from_amx(config: pytest.Config) -> None:
    """Keep oneDNN from AMX where the machine announces it and does not run it, as some virtual machines do.

    A bf16 product ends there with an illegal instruction, in torch alone too. Workers and scripts inherit the setting.
    """
    cpu = Path("/proc/cpuinfo")
    if hasattr(config, "workerinput") or "ONEDNN_MAX_CPU_ISA" in os.environ or not cpu.exists():
        return
    if "amx_tile" in cpu.read_text() and subprocess.run([sys.executable, "-c", _BF16_PRODUCT]).returncode < 0:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
