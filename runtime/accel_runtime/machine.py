"""What this machine has, seen without importing torch: a launcher must not pay seconds to count devices."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """`kind` is a key of MAKERS, or cpu; `devices` are the indices that this process may use."""

    kind: str
    devices: tuple[str, ...]
    cores: int


@dataclass(frozen=True, slots=True)
class Maker:
    """How one maker's devices are counted, and the variable that hides them from a process."""

    count: Callable[[Path], int]
    visible: str


def this_machine(environ: Mapping[str, str], root: Path = Path("/")) -> Machine:
    """Ask the kernel's lists of devices; what the visibility variables hide does not count."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for kind, maker in MAKERS.items():
        if devices := _visible(maker.count(root), environ.get(maker.visible)):
            return Machine(kind, devices, cores)
    return Machine("cpu", (), cores)


def _visible(present: int, said: str | None) -> tuple[str, ...]:
    if said is None or not present:
        return tuple(str(index) for index in range(present))
    return tuple(part.strip() for part in said.split(",") if part.strip() and part.strip() != "-1")


def _files(pattern: str) -> Callable[[Path], int]:
    """Counts the files below the root that match."""
    return lambda root: sum(1 for _ in root.glob(pattern))


def _nvidia(root: Path) -> int:
    """The device files come first: a container has only those that it was given."""
    # Under WSL the driver has neither these nor its list; its library stands for the one adapter.
    wsl = (root / "usr/lib/wsl/lib/libcuda.so.1").exists() and (root / "dev/dxg").exists()
    return _files("dev/nvidia[0-9]*")(root) or _files("proc/driver/nvidia/gpus/*")(root) or int(wsl)


def _amd(root: Path) -> int:
    """Nodes of the compute driver's topology that have SIMD units; the others are CPUs."""
    nodes = root.glob("sys/class/kfd/kfd/topology/nodes/*/properties")
    return sum(1 for node in nodes if any(_has_units(line) for line in node.read_text().splitlines()))


def _has_units(line: str) -> bool:
    name, _, count = line.partition(" ")
    return name == "simd_count" and int(count) > 0


def _intel(root: Path) -> int:
    """Compute tiles of the Xe and i915 drivers; a laptop's display GPU has none and is left to torch."""
    vendors = root.glob("sys/class/drm/renderD*/device/vendor")
    return sum(1 for file in vendors if file.read_text().strip() == "0x8086" and (file.parent / "tile0").exists())


# No such device was at hand: each is tested on an imitation of its files.
MAKERS = {
    "cuda": Maker(_nvidia, "CUDA_VISIBLE_DEVICES"),
    "rocm": Maker(_amd, "HIP_VISIBLE_DEVICES"),
    "xpu": Maker(_intel, "ZE_AFFINITY_MASK"),
    "npu": Maker(_files("dev/davinci[0-9]*"), "ASCEND_RT_VISIBLE_DEVICES"),
    "hpu": Maker(_files("dev/accel/accel[0-9]*"), "HABANA_VISIBLE_MODULES"),
    "tpu": Maker(_files("dev/accel[0-9]*"), "TPU_VISIBLE_CHIPS"),
}
