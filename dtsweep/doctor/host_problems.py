"""Problems of hosts, each in one line with the next step."""

from __future__ import annotations

from collections.abc import Sequence

from dtsweep.doctor.examine import Row
from dtsweep.doctor.gpu_problems import find_gpu_problems, in_gib
from dtsweep.doctor.problems import named_problems
from dtsweep.hardware.other_load import other_load_words

_LARGEST_CLOCK_OFFSET_S = 1.0
"""Times of rows, and Ray's deadlines, then no longer agree."""

_LEAST_SHARED_MEMORY_BYTES = 2**30
"""Shared memory that DataLoader's workers and NCCL need; containers have 64 MiB by default."""

_LEAST_FREE_DISK_BYTES = 5 * 2**30
_LEAST_FREE_SHARE = 0.05
"""Smallest free share of a disk; with less, Ray stops putting objects there."""

_OWN_PROCESSES_BYTES = int(1.5 * 2**30)
"""Memory that a run needs on the driver's node, apart from its ranks.

It is for the other processes of one session, for Tune's, and for growth (docs/log/).
"""


def find_host_problems(hosts: Sequence[Row]) -> list[str]:
    """Say in one line each what is wrong and what to do about it."""
    return named_problems(hosts, _problems_of)


def _problems_of(row: Row) -> list[str]:
    problems = _space_problems(row)
    ahead = row["clock_offset_s"]
    if abs(ahead) - row["clock_error_s"] > _LARGEST_CLOCK_OFFSET_S:
        way = "ahead" if ahead > 0 else "behind"
        problems.insert(0, f"its clock is {abs(ahead):.1f} s {way}; keep it by NTP (chrony)")
    if row["has_ranks"] and row["others_cores"] is not None:
        words = other_load_words(row["others_cores"], row["cores"])
        problems += filter(None, [words])
    return problems + find_gpu_problems(row)


def _space_problems(row: Row) -> list[str]:
    problems = []
    shared = row["shared_memory_bytes"]
    store = row["object_store_bytes"]
    if row["has_ranks"] and shared is not None and shared < max(_LEAST_SHARED_MEMORY_BYTES, store):
        wanted = in_gib(max(_LEAST_SHARED_MEMORY_BYTES, store))
        problems.append(
            f"shared memory (/dev/shm) has {in_gib(shared)}; DataLoader, NCCL and Ray's object "
            f"store want {wanted}: start its container with --shm-size, or with a memory volume "
            "there"
        )
    for folder, disk in row["disks"].items():
        if disk["free_bytes"] < max(
            _LEAST_FREE_DISK_BYTES, _LEAST_FREE_SHARE * disk["total_bytes"]
        ):
            problems.append(
                f"{folder} has {in_gib(disk['free_bytes'])} free of {in_gib(disk['total_bytes'])}; "
                "make room"
            )
    if row["has_driver"] and row["free_memory_bytes"] < _OWN_PROCESSES_BYTES:
        problems.append(
            f"{in_gib(row['free_memory_bytes'])} of memory are free, and a run takes "
            f"{in_gib(_OWN_PROCESSES_BYTES)} here "
            "next to its ranks; end what else runs here, or give this node more"
        )
    return problems
