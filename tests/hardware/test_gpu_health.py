"""What a host's GPUs report of their health, and how they are connected."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from dtsweep.hardware.gpu_health import connections, gpu_direct, health
from dtsweep.hardware.nvml import Gpu
from tests.stand_in_nvml import MissingNvml, StandInNvml

PCI = "sys/bus/pci/devices/0000:1b:00.0/numa_node"
CPUS = "sys/devices/system/node/node1/cpulist"


@pytest.fixture
def write(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    """Write files below a root of their own."""

    def write_files(files: dict[str, str]) -> Path:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return write_files


def test_a_gpu_reports_rows_links_and_its_numa_node(
    write: Callable[[dict[str, str]], Path],
) -> None:
    own = min(os.sched_getaffinity(0))
    root = write({PCI: "1\n", CPUS: f"{own},9000-9001\n"})
    nvml = StandInNvml(nvlinks=(1,) * 4, nvlink_recoveries=2, remapped_rows=(1, 2, 1, 0))
    assert health(Gpu("handle", nvml), root=root) == {
        "pci_bus_id": "0000:1b:00.0",
        "remapped_rows": 3,
        "remap_pending": True,
        "remap_failed": False,
        "pcie_replays": 3,
        "nvlinks": 4,
        "nvlink_errors": {"replay": 0, "recovery": 8, "crc": 0},
        "numa_node": 1,
        "numa_cpus": f"{own},9000-9001",
        "numa_cpus_allowed": 1,
    }


def test_unknown_is_none_and_no_numa_node_is_unknown(
    write: Callable[[dict[str, str]], Path],
) -> None:
    asked = ("PciInfo", "RemappedRows", "PcieReplayCounter", "NvLinkState", "NvLinkErrorCounter")
    silent = StandInNvml(unsupported=[f"nvmlDeviceGet{name}" for name in asked])
    assert set(health(Gpu("handle", silent), root=write({})).values()) == {None}
    root = write({PCI: "-1\n", CPUS: "0\n"})
    assert health(Gpu("handle", StandInNvml()), root=root)["numa_node"] is None


class Pair(StandInNvml):
    """Two devices, each at a bus id of its own, with direct links between them."""

    def answer(self, function: str, *arguments: Any) -> Any:
        super().answer(function, *arguments)  # refuses what it refuses there
        if function == "nvmlDeviceGetHandleByIndex":
            return arguments[0]
        if function == "nvmlDeviceGetPciInfo":
            return SimpleNamespace(domain=0, bus=arguments[0], device=0)
        if function == "nvmlDeviceGetNvLinkRemotePciInfo":
            return SimpleNamespace(domain=0, bus=1 - arguments[0], device=0)
        return super().answer(function, *arguments)


@pytest.mark.parametrize(
    "nvml", [StandInNvml(devices=2, nvlinks=(1,) * 6), Pair(devices=2, nvlinks=(1,) * 6)]
)
def test_nvlinks_are_counted_to_a_switch_and_directly(nvml: StandInNvml) -> None:
    assert connections(nvml=nvml) == [["X", "NV6"], ["NV6", "X"]]


def test_gpus_without_nvlink_are_named_by_what_they_share_on_pcie() -> None:
    class OnPcie(StandInNvml):
        def answer(self, function: str, *arguments: Any) -> Any:
            if function == "nvmlDeviceGetP2PStatus":
                return pynvml.NVML_P2P_STATUS_NOT_SUPPORTED
            return super().answer(function, *arguments)

    assert connections(nvml=OnPcie(devices=2, nvlinks=())) == [["X", "NODE*"], ["NODE*", "X"]]


def test_one_gpu_and_a_machine_without_nvml_have_no_matrix() -> None:
    assert connections(nvml=StandInNvml(devices=1)) is None
    assert connections(nvml=MissingNvml()) is None


def test_gpu_direct_needs_an_active_port_and_a_module_or_the_open_driver(
    write: Callable[[dict[str, str]], Path],
) -> None:
    assert gpu_direct(write({})) == {"nics": [], "peer_module": None, "open_driver": None}
    driver = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
    root = write(
        {
            "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
            "sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN\n",
            "proc/modules": "nvidia_peermem 16384 0 - Live 0x0\nnvidia 9 1 - Live 0x0\n",
            "proc/driver/nvidia/version": driver,
        }
    )
    assert gpu_direct(root) == {
        "nics": ["mlx5_0"],
        "peer_module": "nvidia_peermem",
        "open_driver": True,
    }


def test_every_function_that_is_asked_for_is_one_of_the_library() -> None:
    asked = set()

    class Recorded(StandInNvml):
        def answer(self, function: str, *arguments: Any) -> Any:
            asked.add(function)
            return super().answer(function, *arguments)

    nvml = Recorded(devices=2)
    health(Gpu("handle", nvml))
    connections(nvml=nvml)
    assert len(asked) > 8
    assert [name for name in sorted(asked) if not callable(getattr(pynvml, name, None))] == []
