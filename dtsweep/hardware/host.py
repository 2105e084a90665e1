"""Bytes through the network devices of a host, and small files of its kernel."""

from __future__ import annotations

from pathlib import Path

import psutil  # type: ignore[import-untyped]  # its types are a package of their own

_NETWORK = Path("/sys/class/net")
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
