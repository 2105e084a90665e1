"""Free resources of a host: memory, disk, shared memory, networks, idle GPUs.

Unknown is None or absent.
"""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Mapping, Sequence
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


def interfaces() -> dict[str, list[str]]:
    """IP addresses of this host by network interface, without interfaces that are down."""
    states = psutil.net_if_stats()
    families = (socket.AF_INET, socket.AF_INET6)
    addresses_by_name = {
        name: [entry.address.partition("%")[0] for entry in addresses if entry.family in families]
        for name, addresses in psutil.net_if_addrs().items()
        if name in states and states[name].isup
    }
    return {name: addresses for name, addresses in addresses_by_name.items() if addresses}


def gloo_address(
    environment: Mapping[str, str], addresses: Mapping[str, Sequence[str]], hostname: str
) -> str:
    """The address that gloo listens on, by torch's rule.

    The one of `GLOO_SOCKET_IFNAME` if it is set; else the first of the host name's at which this
    host can listen; else the loopback, from where no other host is reached.

    Returns:
        Empty where the interface that is asked for does not exist.
    """
    if asked := environment.get("GLOO_SOCKET_IFNAME"):
        # A list is of several interfaces over which gloo spreads.
        names = asked.split(",")
        if not all(name in addresses for name in names):
            return ""
        return addresses[names[0]][0]
    try:
        answers = socket.getaddrinfo(hostname, None, type=socket.SOCK_STREAM)
    except OSError:
        answers = []
    return next((str(answer[4][0]) for answer in answers if _can_listen(answer)), "127.0.0.1")


def _can_listen(answer: tuple[Any, ...]) -> bool:
    family, kind, protocol, _, address = answer
    try:
        with socket.socket(family, kind, protocol) as listener:
            listener.bind(address)
    except OSError:
        return False
    return True


def nccl_interfaces(asked: str | None, interface_names: Sequence[str]) -> list[str]:
    """Interfaces that NCCL may use, by the rule of `NCCL_SOCKET_IFNAME`.

    Names are prefixes; `=` asks for the whole name, `^` excludes.

    >>> nccl_interfaces("=eth0", ["eth0", "eth01", "lo"])
    ['eth0']
    >>> nccl_interfaces("^eth,lo", ["eth0", "ib0", "lo"])
    ['ib0']
    >>> nccl_interfaces(None, ["docker0", "eth0", "lo"]), nccl_interfaces(None, ["docker0", "lo"])
    (['eth0'], ['docker0'])
    >>> nccl_interfaces(None, ["eth0", "ib0", "lo"]), nccl_interfaces(None, ["lo", "virbr0"])
    (['ib0'], ['lo'])
    """
    if not asked:
        # InfiniBand's own first, those of containers and of this host alone last.
        last = ("docker", "lo", "virbr")
        infiniband, *rest = (
            [name for name in interface_names if name.startswith(kind)] for kind in ("ib", *last)
        )
        ordinary = [name for name in interface_names if not name.startswith(last)]
        return next((names for names in (infiniband, ordinary, *rest) if names), [])
    mark, names = re.fullmatch(r"([\^=]*)(.*)", asked).groups()  # type: ignore[union-attr]  # it matches any text
    words = [word for word in names.split(",") if word]

    def is_named(name: str) -> bool:
        if "=" in mark:
            return name in words
        return name.startswith(tuple(words))

    return [name for name in interface_names if is_named(name) != ("^" in mark)]


def gpus(*, nvml: Any = pynvml) -> list[dict[str, Any]] | None:
    """Describe all GPUs of this host: their processes, and errors of their memory.

    Returns:
        For each `used_bytes`, `utilization`, `processes`, `memory_errors` (uncorrected, since the
        driver was loaded), `remap_pending` and `remap_failed` of faulty rows, and `slices` (MIG;
        None where it is off or unknown); None without NVML.
    """
    devices = all_gpus(nvml=nvml)
    if devices is None:
        return None
    return [_state(gpu) for gpu in devices]


def _state(gpu: Gpu) -> dict[str, Any]:
    reading = gpu.read()
    processes = gpu.processes()
    remapped = gpu.ask("nvmlDeviceGetRemappedRows")
    pending = None
    failed = None
    if remapped is not None:
        pending, failed = (bool(flag) for flag in remapped[2:])
    kinds = (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
    return {
        "used_bytes": reading.memory_bytes,
        "utilization": reading.utilization,
        "processes": None if processes is None else len(processes),
        "memory_errors": gpu.ask("nvmlDeviceGetTotalEccErrors", *kinds),
        "remap_pending": pending,
        "remap_failed": failed,
        "slices": _slices(gpu),
    }


def _slices(gpu: Gpu) -> int | None:
    most = gpu.ask("nvmlDeviceGetMaxMigDeviceCount")
    if most is None or not (gpu.ask("nvmlDeviceGetMigMode") or [0])[0]:
        return None
    return sum(
        gpu.ask("nvmlDeviceGetMigDeviceHandleByIndex", index) is not None for index in range(most)
    )
