"""Actor that looks around a node without taking a CPU: what is free, and the clock."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dtsweep.doctor.examine import Row
from dtsweep.provenance.versions import all_versions

_PINGS = 5
"""Questions for the time; the one that came back soonest is believed."""


class Host:
    """An actor on a node."""

    def look_around(self) -> Row:
        """Report what this host has left for a run.

        Returns:
            `node`; `versions`; `free_memory_bytes`; `shared_memory_bytes`, None without any;
            `disks`, by folder as `disk_bytes` gives them; `gpus`, None without NVML;
            `others_cores`, which other processes than Ray's use, None where unknown, and `cores`,
            those that ranks may use.
        """
        import ray

        from dtsweep.hardware.other_load import OtherLoad, processes_of_ray
        from dtsweep.hardware.readiness import (
            disk_bytes,
            free_memory_bytes,
            gpus,
            shared_memory_bytes,
        )

        # Runs and Ray leave files in these folders; of two on one disk one counts.
        session = Path(ray._private.worker._global_node.get_session_dir_path())
        other_load = OtherLoad(pids=processes_of_ray(session.name))
        folders = {
            folder.stat().st_dev: folder for folder in (session, Path(tempfile.gettempdir()))
        }
        return {
            "node": socket.gethostname(),
            "versions": all_versions(),
            "free_memory_bytes": free_memory_bytes(),
            "shared_memory_bytes": shared_memory_bytes(),
            "disks": {str(folder): disk_bytes(folder) for folder in folders.values()},
            "gpus": gpus(),
            **dict(zip(("others_cores", "cores"), other_load.use() or (None, None), strict=True)),
        }

    def seconds(self) -> float:
        """This host's time, in seconds since the epoch."""
        return time.time()


def ask_clock(
    host_clock: Callable[[], float], *, clock: Callable[[], float] = time.time
) -> dict[str, float]:
    """Estimate how far a host's clock is ahead of ours, and the error of that, both in s.

    >>> ours = iter([10, 11, 0, 9, 0, 9, 0, 9, 0, 9])
    >>> ask_clock(iter([12, 9, 9, 9, 9]).__next__, clock=ours.__next__)
    {'clock_offset_s': 1.5, 'clock_error_s': 0.5}
    """
    pings = [(clock(), host_clock(), clock()) for _ in range(_PINGS)]
    asked_at, host_time, answered_at = min(pings, key=lambda ping: ping[2] - ping[0])
    return {
        "clock_offset_s": host_time - (asked_at + answered_at) / 2,
        "clock_error_s": (answered_at - asked_at) / 2,
    }
