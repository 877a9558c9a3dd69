"""What this machine has, seen without importing torch: a launcher must not pay seconds to count devices."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# The variable that hides devices from a process, by the maker's driver.
VISIBLE = {
    "cuda": "CUDA_VISIBLE_DEVICES",
    "rocm": "HIP_VISIBLE_DEVICES",
    "xpu": "ZE_AFFINITY_MASK",
    "tpu": "TPU_VISIBLE_CHIPS",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """`kind` is cuda, rocm, xpu, tpu or cpu; `devices` are the indices that this process may use."""

    kind: str
    devices: tuple[str, ...]
    cores: int


def this_machine(environ: Mapping[str, str], root: Path = Path("/")) -> Machine:
    """Ask the kernel's lists of devices; what the visibility variables hide does not count."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for kind, present in (("cuda", _nvidia(root)), ("rocm", _amd(root)), ("xpu", _intel(root)), ("tpu", _tpu(root))):
        if devices := _visible(present, environ.get(VISIBLE[kind])) if present else ():
            return Machine(kind, devices, cores)
    return Machine("cpu", (), cores)


def _visible(present: int, said: str | None) -> tuple[str, ...]:
    if said is None:
        return tuple(str(index) for index in range(present))
    return tuple(part.strip() for part in said.split(",") if part.strip() and part.strip() != "-1")


def _nvidia(root: Path) -> int:
    """The device files come first: a container has only those that it was given."""
    files = sum(1 for _ in (root / "dev").glob("nvidia[0-9]*")) if (root / "dev").is_dir() else 0
    # Under WSL the driver has neither; its library stands for the one adapter.
    wsl = (root / "usr/lib/wsl/lib/libcuda.so.1").exists() and (root / "dev/dxg").exists()
    return files or sum(1 for _ in (root / "proc/driver/nvidia/gpus").glob("*")) or int(wsl)


def _amd(root: Path) -> int:
    """Nodes of the compute driver's topology that have SIMD units; the others are CPUs."""
    nodes = (root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")
    return sum(1 for node in nodes if any(_has_units(line) for line in node.read_text().splitlines()))


def _has_units(line: str) -> bool:
    name, _, count = line.partition(" ")
    return name == "simd_count" and int(count) > 0


def _intel(root: Path) -> int:
    """Compute tiles of the Xe and i915 drivers; a laptop's display GPU has no level-zero mask and is left to torch."""
    vendors = (root / "sys/class/drm").glob("renderD*/device/vendor")
    discrete = [path for path in vendors if path.read_text().strip() == "0x8086" and (path.parent / "tile0").exists()]
    return len(discrete)


def _tpu(root: Path) -> int:
    return sum(1 for _ in (root / "dev").glob("accel[0-9]*")) if (root / "dev").is_dir() else 0
