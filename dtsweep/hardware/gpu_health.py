"""Health and connections of a host's GPUs: memory rows, PCIe, NVLink, NUMA, GPUDirect RDMA.

Unknown is None.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pynvml

from dtsweep.hardware.gpu_place import bus_id
from dtsweep.hardware.host import ROOT, kernel_text
from dtsweep.hardware.nvml import Gpu, all_gpus

PATHS: Mapping[str, str] = MappingProxyType(
    {
        "internal": "PSB",
        "single": "PIX",
        "multiple": "PXB",
        "hostbridge": "PHB",
        "node": "NODE",
        "system": "SYS",
    }
)
"""Names that `nvidia-smi topo -m` has for the paths between two GPUs, by those of `TOPOLOGY`."""

PEER_MODULES = ("nvidia_peermem", "nv_peer_mem", "efa_nv_peermem")
"""Kernel modules by which a NIC reaches the memory of a GPU."""


def gpu_bus_id(gpu: Gpu) -> str | None:
    """PCI bus id of a GPU, as the kernel writes it."""
    pci = gpu.ask("nvmlDeviceGetPciInfo")
    if pci is None:
        return None
    return bus_id(pci.domain, pci.bus, pci.device)


def health(gpu: Gpu, *, root: Path = ROOT) -> dict[str, Any]:
    """Describe memory rows, PCIe, NVLink and NUMA of a GPU.

    Args:
        gpu: to ask.
        root: of the file system that holds `sys`.

    Returns:
        `pci_bus_id`; `remapped_rows`, how many rows of its memory were replaced by spare ones;
        `remap_pending`, `remap_failed`; `pcie_replays`, packets that were sent again since the
        driver was loaded; `nvlinks`, how many are active; `nvlink_errors` by kind, since the driver
        was loaded; and what `numa` gives.
    """
    place = gpu_bus_id(gpu)
    correctable, uncorrectable, pending, failed = gpu.ask("nvmlDeviceGetRemappedRows") or [None] * 4
    remapped = None
    if correctable is not None:
        remapped = correctable + uncorrectable
    return {
        "pci_bus_id": place,
        "remapped_rows": remapped,
        "remap_pending": None if pending is None else bool(pending),
        "remap_failed": None if failed is None else bool(failed),
        "pcie_replays": gpu.ask("nvmlDeviceGetPcieReplayCounter"),
        "nvlinks": gpu.active_nvlinks(),
        "nvlink_errors": _nvlink_errors(gpu),
        **numa(place, root=root),
    }


def _nvlink_errors(gpu: Gpu) -> dict[str, int] | None:
    """Errors of all links of a GPU by kind; None where no link reports any kind."""
    kinds = {
        "replay": gpu.nvml.NVML_NVLINK_ERROR_DL_REPLAY,
        "recovery": gpu.nvml.NVML_NVLINK_ERROR_DL_RECOVERY,
        "crc": gpu.nvml.NVML_NVLINK_ERROR_DL_CRC_FLIT,
    }
    errors = {}
    for name, kind in kinds.items():
        counts = [
            gpu.ask("nvmlDeviceGetNvLinkErrorCounter", link, kind) for link in gpu.link_numbers()
        ]
        reported = [count for count in counts if count is not None]
        if reported:
            errors[name] = sum(reported)
    return errors or None


def numa(place: str | None, *, root: Path = ROOT) -> dict[str, Any]:
    """NUMA node of a PCI device, and its CPUs among those that this process may use.

    Args:
        place: PCI bus id.
        root: of the file system that holds `sys`.

    Returns:
        `numa_node`, None if the kernel names none; `numa_cpus`, a list as the kernel writes it;
        `numa_cpus_allowed`, how many of these this process may use.
    """
    unknown = {"numa_node": None, "numa_cpus": None, "numa_cpus_allowed": None}
    number = kernel_text(root / f"sys/bus/pci/devices/{place}/numa_node")
    if number is None or int(number) < 0:
        return unknown
    cpus = kernel_text(root / f"sys/devices/system/node/node{number}/cpulist")
    if cpus is None:
        return {**unknown, "numa_node": int(number)}
    allowed = listed_cpus(cpus) & os.sched_getaffinity(0)
    return {"numa_node": int(number), "numa_cpus": cpus, "numa_cpus_allowed": len(allowed)}


def listed_cpus(text: str) -> set[int]:
    """Read a list of CPUs, as the kernel writes it.

    >>> sorted(listed_cpus("0-2,8"))
    [0, 1, 2, 8]
    """
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def connections(*, nvml: Any = pynvml) -> list[list[str]] | None:
    """Matrix of the paths between all GPUs of this host, in NVML's order.

    Returns:
        Names as in `nvidia-smi topo -m`: `NV` and the number of NVLinks, else what both share on
        PCIe (`PIX`, `PXB`, `PHB`, `NODE`, `SYS`); `*` where a GPU can't reach the other's memory;
        `X` on the diagonal. None where there are not two GPUs.
    """
    gpus = all_gpus(nvml=nvml)
    if gpus is None or len(gpus) < 2:
        return None
    places = [gpu_bus_id(gpu) for gpu in gpus]
    ends = [_nvlink_ends(gpu) for gpu in gpus]
    matrix = [["X"] * len(gpus) for _ in gpus]
    for i, j in itertools.permutations(range(len(gpus)), 2):
        # Through a switch, all links of a GPU lead to each other one.
        through_switch = min(len(ends[i]), len(ends[j]))
        nvlinks = ends[i].count(places[j]) or through_switch
        matrix[i][j] = _path_name(gpus[i].link(gpus[j]), nvlinks=nvlinks)
    return matrix


def _nvlink_ends(gpu: Gpu) -> list[str | None]:
    """PCI bus id of the device at the other end of each active link; None where it is unknown."""
    ends: list[str | None] = []
    for link in gpu.link_numbers():
        if gpu.ask("nvmlDeviceGetNvLinkState", link) == gpu.nvml.NVML_FEATURE_ENABLED:
            pci = gpu.ask("nvmlDeviceGetNvLinkRemotePciInfo", link)
            ends.append(None if pci is None else bus_id(pci.domain, pci.bus, pci.device))
    return ends


def _path_name(link: str, *, nvlinks: int) -> str:
    """Name a path as `nvidia-smi topo -m` does.

    >>> _path_name("system p2p nvlink", nvlinks=18), _path_name("hostbridge", nvlinks=0)
    ('NV18', 'PHB*')
    """
    level, *works = link.split()
    if "nvlink" in works:
        return f"NV{nvlinks}"
    path = PATHS.get(level, level)
    if "p2p" not in works:
        path += "*"
    return path


def gpu_direct(root: Path = ROOT) -> dict[str, Any]:
    """Find what GPUDirect RDMA needs: a NIC, and a way from it to the memory of a GPU.

    Args:
        root: of the file system that holds `proc` and `sys`.

    Returns:
        `nics`, RDMA devices with an active port; `peer_module`, the one of `PEER_MODULES` that is
        loaded; `open_driver`, whether the driver's kernel modules are the open ones, which dmabuf
        needs; None without a driver.
    """
    ports = sorted((root / "sys/class/infiniband").glob("*/ports/*/state"))
    nics = [port.parts[-4] for port in ports if "ACTIVE" in (kernel_text(port) or "")]
    modules = (kernel_text(root / "proc/modules") or "").splitlines()
    loaded = {line.split()[0] for line in modules}
    driver = kernel_text(root / "proc/driver/nvidia/version")
    return {
        "nics": [*dict.fromkeys(nics)],
        "peer_module": next((name for name in PEER_MODULES if name in loaded), None),
        "open_driver": None if driver is None else "Open Kernel Module" in driver,
    }
