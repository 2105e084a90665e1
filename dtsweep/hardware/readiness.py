"""Free resources of a host: memory, disk, shared memory, idle GPUs.

Unknown is None or absent.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # its types are a package of their own
import pynvml

from dtsweep.hardware.nvml import Gpu, all_gpus

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # nothing is written there
_CGROUP = Path("/sys/fs/cgroup")


def free_memory_bytes(cgroup: Path = _CGROUP) -> int:
    """Memory still available to processes: of the machine, or of a container that has less."""
    free_bytes = [int(psutil.virtual_memory().available)]
    for folder, limit, used, prefix in (
        (cgroup, "memory.max", "memory.current", ""),
        (
            cgroup / "memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_",
        ),  # the older hierarchy
    ):
        with suppress(OSError):  # no such group
            most, taken, stat = (
                (folder / name).read_text("ascii") for name in (limit, used, "memory.stat")
            )
            if most.strip() != "max":
                free_bytes.append(int(most) - int(taken) + _cached_bytes(stat, prefix))
    return max(0, min(free_bytes))


def _cached_bytes(stat: str, prefix: str) -> int:
    r"""Page cache in a group's usage, which the kernel frees on demand.

    Ray's memory monitor leaves it out, too.

    >>> _cached_bytes("anon 5\nactive_file 2\ninactive_file 3\n", "")
    5
    """
    counts = dict(line.split() for line in stat.splitlines())
    return sum(int(counts.get(f"{prefix}{name}", 0)) for name in ("active_file", "inactive_file"))


def disk_bytes(folder: str | Path) -> dict[str, int]:
    """Size of the disk of a folder and what is free of it: `total_bytes`, `free_bytes`."""
    usage = shutil.disk_usage(folder)
    return {"total_bytes": usage.total, "free_bytes": usage.free}


def shared_memory_bytes(folder: Path = _SHARED_MEMORY) -> int | None:
    """Size of the shared memory of this host or container."""
    if not folder.is_dir():
        return None
    return shutil.disk_usage(folder).total


def gpus(*, nvml: Any = pynvml) -> list[dict[str, Any]] | None:
    """Describe all GPUs of this host: their processes, and errors of their memory.

    Returns:
        For each `used_bytes`, `utilization`, `processes`, and `memory_errors` (uncorrected, since
        the driver was loaded); the use of a GPU in slices (MIG) is unknown, since counters add up
        all slices. None without NVML.
    """
    devices = all_gpus(nvml=nvml)
    if devices is None:
        return None
    return [_state(gpu) for gpu in devices]


def _state(gpu: Gpu) -> dict[str, Any]:
    reading = gpu.read()
    processes = gpu.processes()
    uses = {
        "used_bytes": reading.memory_bytes,
        "utilization": reading.utilization,
        "processes": None if processes is None else len(processes),
    }
    if (gpu.ask("nvmlDeviceGetMigMode") or [0])[0]:
        uses = dict.fromkeys(uses)
    kinds = (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
    return {**uses, "memory_errors": gpu.ask("nvmlDeviceGetTotalEccErrors", *kinds)}
