"""Actor that looks around a node without taking a CPU: what is free, networks and the clock."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dtsweep.doctor.examine import Row
from dtsweep.provenance.versions import all_versions

PINGS = 5
"""Questions for the time; the one that came back soonest is believed."""


class Host:
    """An actor on a node."""

    def look_around(self) -> Row:
        """Report what this host has left for a run.

        Returns:
            `node`; `versions`; `free_memory_bytes`; `shared_memory_bytes`, None without any;
            `disks`, by folder as `disk_bytes` gives them; `interfaces`, addresses by name;
            `gloo_address`, empty where the interface that is asked for is missing;
            `nccl_interfaces`; `asked`, the variables that choose interfaces; `gpus`, None without
            NVML.
        """
        from dtsweep.hardware.readiness import (
            disk_bytes,
            free_memory_bytes,
            gloo_address,
            gpus,
            interfaces,
            nccl_interfaces,
            shared_memory_bytes,
        )

        addresses = interfaces()
        asked = {
            name: os.environ[name]
            for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
            if name in os.environ
        }
        return {
            "node": socket.gethostname(),
            "versions": all_versions(),
            "free_memory_bytes": free_memory_bytes(),
            "shared_memory_bytes": shared_memory_bytes(),
            "disks": {str(folder): disk_bytes(folder) for folder in _folders()},
            "interfaces": addresses,
            "gloo_address": gloo_address(os.environ, addresses, socket.gethostname()),
            "nccl_interfaces": nccl_interfaces(asked.get("NCCL_SOCKET_IFNAME"), list(addresses)),
            "asked": asked,
            "gpus": gpus(),
        }

    def seconds(self) -> float:
        """This host's time, in seconds since the epoch."""
        return time.time()


def _folders() -> list[Path]:
    """Folders of this host in which runs and Ray leave files, one for each disk."""
    import ray

    session = ray._private.worker._global_node.get_session_dir_path()
    wanted = [Path(tempfile.gettempdir()), Path(session)]
    return [*{folder.stat().st_dev: folder for folder in reversed(wanted)}.values()]


@dataclass(frozen=True, kw_only=True)
class Ping:
    """A question for the time, in seconds since the epoch."""

    asked_at: float
    host_time: float
    answered_at: float


def clock_offset(pings: Sequence[Ping]) -> dict[str, float]:
    """Estimate how far a clock is ahead of ours, and the error of that, both in s.

    >>> soon = Ping(asked_at=10, host_time=12, answered_at=11)
    >>> late = Ping(asked_at=0, host_time=9, answered_at=9)
    >>> clock_offset([soon, late])
    {'clock_offset_s': 1.5, 'clock_error_s': 0.5}
    """
    best = min(pings, key=lambda ping: ping.answered_at - ping.asked_at)
    return {
        "clock_offset_s": best.host_time - (best.asked_at + best.answered_at) / 2,
        "clock_error_s": (best.answered_at - best.asked_at) / 2,
    }


def ask_clock(
    host_clock: Callable[[], float], *, clock: Callable[[], float] = time.time
) -> dict[str, float]:
    """Ask a host for its time some times; see `clock_offset`."""
    return clock_offset(
        [Ping(asked_at=clock(), host_time=host_clock(), answered_at=clock()) for _ in range(PINGS)]
    )
