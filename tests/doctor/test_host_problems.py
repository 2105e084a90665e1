"""What is wrong with hosts and their networks, on made-up facts."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dtsweep.doctor.host_problems import find_host_problems
from tests.doctor.nodes import IDLE_GPU, host_row

OTHER = host_row(node="gpu-2", node_id="b2", address="10.0.0.2", gloo_address="10.0.0.2")
GIB = 2**30


def problems_of(**changes: Any) -> list[str]:
    return find_host_problems([host_row(**changes), OTHER])


def disk(total_gib: int, free_gib: int) -> dict[str, Any]:
    sizes = {"total_bytes": total_gib * GIB, "free_bytes": free_gib * GIB}
    return {"disks": {"/scratch": sizes}}


def gpus(ray_gpus: int, *changes: dict[str, Any]) -> dict[str, Any]:
    return {"ray_gpus": ray_gpus, "gpus": [IDLE_GPU | one for one in changes]}


BUSY = {"processes": 2, "used_bytes": 9 * GIB, "utilization": 0.5}
SLICED = {"slices": 2}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"others_cores": 1.1}, "other processes use 1.1 of 8 cores: expect noisier numbers"),
        ({"clock_offset_s": 3.5}, "its clock is 3.5 s ahead; keep it by NTP"),
        ({"clock_offset_s": -3.5}, "its clock is 3.5 s behind; keep it by NTP"),
        (
            {"shared_memory_bytes": GIB // 16},
            "shared memory (/dev/shm) has 0.1 GiB; .* want 2.0 GiB: .* --shm-size",
        ),
        (
            {"shared_memory_bytes": GIB // 2, "object_store_bytes": 0},
            "shared memory .* want 1.0 GiB",
        ),
        (disk(10, 2), "/scratch has 2.0 GiB free of 10"),
        (disk(900, 40), "/scratch has 40.0 GiB free"),
        (
            {"has_driver": True, "free_memory_bytes": GIB},
            "1.0 GiB of memory are free, .* 1.5 GiB here next to",
        ),
        (
            {"gloo_address": "127.0.1.1"},
            "gloo would listen on 127.0.1.1, where no other host .* GLOO_SOCKET_IFNAME",
        ),
        ({"gloo_address": "::1"}, "gloo would listen on ::1"),
        (
            {"gloo_address": "", "asked": {"GLOO_SOCKET_IFNAME": "ib0"}},
            "GLOO_SOCKET_IFNAME=ib0 names no interface of this host (eth0); set it to one of them",
        ),
        (
            gpus(1, {}) | {"nccl_interfaces": [], "asked": {"NCCL_SOCKET_IFNAME": "ib"}},
            "NCCL_SOCKET_IFNAME=ib names no interface of this host",
        ),
        (
            gpus(1, {}) | {"nccl_interfaces": ["lo"]},
            "NCCL would take the loopback; set NCCL_",
        ),
        (gpus(2, {}), "Ray has 2 GPUs, the driver 1; start Ray with --num-gpus=1"),
        (
            gpus(2, {}, BUSY),
            "GPU 1 is not idle (2 processes, 9.0 GiB in use, busy for 50% of the time); wait for",
        ),
        (gpus(3, SLICED), "Ray has 3 GPUs, the driver 2; start Ray with"),
        (gpus(1, {"slices": 0}), "Ray has 1 GPUs, the driver 0; start Ray with"),
        (gpus(1, {"memory_errors": 3}), "GPU 0 has 3 uncorrected memory errors; take it"),
        (
            gpus(3, SLICED, {}),
            "Ray has 3 GPUs, which are slices (MIG) of 2, and NCCL refuses two ranks on one GPU: "
            "use workers=1",
        ),
        (
            gpus(1, {"remap_pending": True}),
            "GPU 0 replaces faulty rows of its memory at its next reset; .* --gpu-reset -i 0",
        ),
        (
            gpus(1, {"remap_pending": True, "remap_failed": True}),
            "GPU 0 could not replace faulty rows of its memory; take it out",
        ),
    ],
)
def test_a_problem_names_the_node_and_the_next_step(changes: dict[str, Any], problem: str) -> None:
    (found,) = problems_of(**changes)
    assert re.match(re.escape(f"gpu-1: {problem}").replace(r"\.\*", ".*"), found), found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        gpus(1, {}),
        {"gpus": [dict.fromkeys(IDLE_GPU)]},
        {"clock_offset_s": 1.4, "clock_error_s": 0.5},
        {"others_cores": None, "cores": None},
        {"others_cores": 1.1, "has_ranks": False},
        {"has_ranks": False, "gloo_address": "127.0.0.1", "shared_memory_bytes": GIB // 16},
        {"free_memory_bytes": GIB},
        {"free_memory_bytes": 2 * GIB, "has_driver": True},
        # A rank on a slice of each GPU; counters of slices accuse nobody.
        gpus(2, SLICED | BUSY, {}),
    ],
)
def test_what_is_healthy_unknown_or_does_not_matter_here_is_no_problem(
    changes: dict[str, Any],
) -> None:
    assert problems_of(**changes) == []


def test_absent_interfaces_and_silence_are_problems_anywhere_the_loopback_of_one_host_is_none() -> (
    None
):
    (absent,) = find_host_problems([host_row(gloo_address="", asked={"GLOO_SOCKET_IFNAME": "ib0"})])
    assert "GLOO_SOCKET_IFNAME=ib0 names no interface" in absent
    alone = host_row(gloo_address="127.0.0.1")
    assert find_host_problems([alone, alone | {"node_id": "c3"}]) == find_host_problems([]) == []
    silent = {"node_id": "c3", "node": "c3", "error": "no answer in 120 s; restart it"}
    assert find_host_problems([silent, OTHER]) == ["c3: no answer in 120 s; restart it"]
