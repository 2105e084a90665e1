"""Counters of a host: bytes through its network devices, and energy of its CPUs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # its types are a package of their own

_NETWORK = Path("/sys/class/net")
_POWERCAP = Path("/sys/class/powercap")
ROOT = Path("/")


def kernel_text(file: Path) -> str | None:
    """A small file of the kernel.

    None where it is missing, forbidden, or says that it does not apply.
    """
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def network_bytes() -> dict[str, tuple[int, int]]:
    """Count bytes sent and received by the host, by interface; RDMA traffic is not seen.

    Only interfaces with a device count, since bridges and bonds would count bytes twice; in a
    container, where they are invisible, all but the loopback.
    """
    counted = {
        name: (io.bytes_sent, io.bytes_recv)
        for name, io in psutil.net_io_counters(pernic=True).items()
    }
    counted.pop("lo", None)
    return {
        name: byte_counts
        for name, byte_counts in counted.items()
        if (_NETWORK / name / "device").exists()
    } or counted


def cpu_energy_counters(powercap: Path = _POWERCAP) -> dict[str, tuple[int, int]] | None:
    """Read the energy of each CPU package (RAPL) and its counter's range, in microjoules.

    Returns:
        None where there is no such counter, or only root may read it.
    """
    try:
        packages = [
            zone
            for zone in powercap.glob("intel-rapl:*")
            if (zone / "name").read_text("ascii").startswith("package")
        ]
        counters = {
            zone.name: (_number(zone / "energy_uj"), _number(zone / "max_energy_range_uj"))
            for zone in packages
        }
    except OSError:
        return None
    return counters or None


def cpu_energy_j(
    first: Mapping[str, tuple[int, int]] | None, last: Mapping[str, tuple[int, int]] | None
) -> float | None:
    """Energy that all CPU packages used between two readings; a counter may wrap around once.

    >>> first = {"intel-rapl:0": (9_000_000, 10_000_000)}
    >>> cpu_energy_j(first, {"intel-rapl:0": (2_000_000, 10_000_000)})
    3.0
    """
    if first is None or last is None or first.keys() != last.keys():
        return None
    total = 0
    for name, (now, wraps_at) in last.items():
        total += (now - first[name][0]) % wraps_at
    return total / 1e6


def _number(file: Path) -> int:
    return int(file.read_text("ascii"))
