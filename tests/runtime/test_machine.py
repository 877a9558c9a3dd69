"""Counting devices without torch, on machines that this one only imitates."""

from __future__ import annotations

from pathlib import Path

from accel_runtime.machine import this_machine


def test_no_device_is_the_cpu(tmp_path: Path) -> None:
    machine = this_machine({"CUDA_VISIBLE_DEVICES": "0,1"}, tmp_path)
    assert (machine.kind, machine.devices) == ("cpu", ())
    assert machine.cores >= 1


def test_nvidia_devices_are_those_that_may_be_seen(tmp_path: Path) -> None:
    for address in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "proc/driver/nvidia/gpus" / address).mkdir(parents=True)
    assert this_machine({}, tmp_path).devices == ("0", "1")
    assert this_machine({"CUDA_VISIBLE_DEVICES": "1"}, tmp_path).devices == ("1",)
    for hidden in ("", "-1"):
        assert this_machine({"CUDA_VISIBLE_DEVICES": hidden}, tmp_path).kind == "cpu"


def test_a_container_has_the_devices_it_was_given(tmp_path: Path) -> None:
    for address in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "proc/driver/nvidia/gpus" / address).mkdir(parents=True)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia1").touch()
    assert len(this_machine({}, tmp_path).devices) == 1


def test_amd_counts_the_nodes_that_compute(tmp_path: Path) -> None:
    for number, units in enumerate((0, 416, 416)):
        node = tmp_path / "sys/class/kfd/kfd/topology/nodes" / str(number)
        node.mkdir(parents=True)
        (node / "properties").write_text(f"cpu_cores_count 1\nsimd_count {units}\n")
    machine = this_machine({}, tmp_path)
    assert (machine.kind, machine.devices) == ("rocm", ("0", "1"))


def test_tpu_chips(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for chip in range(4):
        (tmp_path / "dev" / f"accel{chip}").touch()
    assert this_machine({}, tmp_path).kind == "tpu"


def test_intel_counts_the_adapters_with_compute_tiles(tmp_path: Path) -> None:
    for number, tiles in ((128, False), (129, True)):
        device = tmp_path / f"sys/class/drm/renderD{number}/device"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x8086\n")
        if tiles:
            (device / "tile0").mkdir()
    machine = this_machine({}, tmp_path)
    assert (machine.kind, machine.devices) == ("xpu", ("0",))


def test_ascend_and_gaudi(tmp_path: Path) -> None:
    (tmp_path / "ascend/dev").mkdir(parents=True)
    (tmp_path / "ascend/dev/davinci0").touch()
    (tmp_path / "ascend/dev/davinci_manager").touch()
    (tmp_path / "gaudi/dev/accel").mkdir(parents=True)
    (tmp_path / "gaudi/dev/accel/accel0").touch()
    (tmp_path / "gaudi/dev/accel/accel_controlD0").touch()
    for folder, kind in (("ascend", "npu"), ("gaudi", "hpu")):
        machine = this_machine({}, tmp_path / folder)
        assert (machine.kind, machine.devices) == (kind, ("0",))
