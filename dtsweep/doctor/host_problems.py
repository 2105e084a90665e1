"""Problems of hosts, each in one line with the next step."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from dtsweep.doctor.examine import Row
from dtsweep.doctor.gpu_problems import find_gpu_problems, in_gib
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
    named_problems = []
    several = len({row["address"] for row in hosts if "error" not in row}) > 1
    for row in hosts:
        if "error" in row:
            problems = [row["error"]]
        else:
            problems = _problems_of(row, several=several)
        named_problems += [f"{row['node']}: {problem}" for problem in problems]
    return named_problems


def _problems_of(row: Row, *, several: bool) -> list[str]:
    problems = [*_clock_problems(row), *_space_problems(row)]
    if row["has_ranks"]:
        problems += _load_problems(row)
        problems += _network_problems(row, several=several)
    return problems + find_gpu_problems(row)


def _clock_problems(row: Row) -> list[str]:
    ahead = row["clock_offset_s"]
    error = row["clock_error_s"]
    if abs(ahead) - error <= _LARGEST_CLOCK_OFFSET_S:
        return []
    return [
        f"its clock is {abs(ahead):.1f} s {'ahead' if ahead > 0 else 'behind'}; keep it by NTP "
        "(chrony)"
    ]


def _load_problems(row: Row) -> list[str]:
    if row["others_cores"] is None:
        return []
    words = other_load_words(row["others_cores"], row["cores"])
    return [] if words is None else [words]


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


def _network_problems(row: Row, *, several: bool) -> list[str]:
    """Say what keeps ranks apart: a missing interface or, between hosts, the loopback."""
    choices = ", ".join(name for name in row["interfaces"] if name != "lo") or "lo"
    if row["ray_gpus"]:
        name = "NCCL_SOCKET_IFNAME"
        taken = row["nccl_interfaces"]
        alone = row["nccl_interfaces"] == ["lo"]
        problem = f"NCCL would take the loopback; set {name} to one of {choices}"
    else:
        name = "GLOO_SOCKET_IFNAME"
        taken = row["gloo_address"]
        alone = bool(taken) and ipaddress.ip_address(taken).is_loopback
        problem = (
            f"gloo would listen on {taken}, where no other host reaches it: set {name} to one of "
            f"{choices}, in Resources(environment=…), or have the host name resolve to this host's "
            "address"
        )
    if not taken:
        return [
            f"{name}={row['asked'].get(name)} names no interface of this host ({choices}); set it "
            "to one of them"
        ]
    if several and alone:
        return [problem]
    return []
