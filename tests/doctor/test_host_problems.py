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


def test_healthy_hosts_have_no_problems() -> None:
    assert problems_of() == []
    assert problems_of(ray_gpus=1, gpus=[IDLE_GPU]) == []
    assert find_host_problems([]) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
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
        (
            {"disks": {"/scratch": {"total_bytes": 10 * GIB, "free_bytes": 2 * GIB}}},
            "/scratch has 2.0 GiB free of 10",
        ),
        (
            {"disks": {"/scratch": {"total_bytes": 900 * GIB, "free_bytes": 40 * GIB}}},
            "/scratch has 40.0 GiB free",
        ),
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
            {
                "ray_gpus": 1,
                "gpus": [IDLE_GPU],
                "nccl_interfaces": [],
                "asked": {"NCCL_SOCKET_IFNAME": "ib"},
            },
            "NCCL_SOCKET_IFNAME=ib names no interface of this host",
        ),
        (
            {"ray_gpus": 1, "gpus": [IDLE_GPU], "nccl_interfaces": ["lo"]},
            "NCCL would take the loopback; set NCCL_",
        ),
        (
            {"ray_gpus": 2, "gpus": [IDLE_GPU]},
            "Ray has 2 GPUs, the driver 1; start Ray with --num-gpus=1",
        ),
        (
            {
                "ray_gpus": 2,
                "gpus": [
                    IDLE_GPU,
                    IDLE_GPU | {"processes": 2, "used_bytes": 9 * GIB, "utilization": 0.5},
                ],
            },
            "GPU 1 is not idle (2 processes, 9.0 GiB in use, busy for 50% of the time); wait for",
        ),
        (
            {"ray_gpus": 3, "gpus": [IDLE_GPU | {"slices": 2}]},
            "Ray has 3 GPUs, the driver 2; start Ray with",
        ),
        (
            {"ray_gpus": 1, "gpus": [IDLE_GPU | {"slices": 0}]},
            "Ray has 1 GPUs, the driver 0; start Ray with",
        ),
        (
            {"ray_gpus": 1, "gpus": [IDLE_GPU | {"memory_errors": 3}]},
            "GPU 0 has 3 uncorrected memory errors; take it",
        ),
        (
            {"ray_gpus": 3, "gpus": [IDLE_GPU | {"slices": 2}, IDLE_GPU]},
            "Ray has 3 GPUs, which are slices (MIG) of 2, and NCCL refuses two ranks on one GPU: "
            "use workers=1",
        ),
        (
            {"ray_gpus": 1, "gpus": [IDLE_GPU | {"remap_pending": True}]},
            "GPU 0 replaces faulty rows of its memory at its next reset; .* --gpu-reset -i 0",
        ),
        (
            {"ray_gpus": 1, "gpus": [IDLE_GPU | {"remap_pending": True, "remap_failed": True}]},
            "GPU 0 could not replace faulty rows of its memory; take it out",
        ),
    ],
)
def test_a_problem_names_the_node_and_the_next_step(changes: dict[str, Any], problem: str) -> None:
    (found,) = problems_of(**changes)
    assert re.match(re.escape(f"gpu-1: {problem}").replace(r"\.\*", ".*"), found), found


def test_an_absent_interface_is_a_problem_anywhere_and_others_only_where_they_matter() -> None:
    (absent,) = find_host_problems([host_row(gloo_address="", asked={"GLOO_SOCKET_IFNAME": "ib0"})])
    assert "GLOO_SOCKET_IFNAME=ib0 names no interface" in absent
    alone = host_row(gloo_address="127.0.0.1")
    assert find_host_problems([alone, alone | {"node_id": "c3"}]) == []
    assert (
        problems_of(has_ranks=False, gloo_address="127.0.0.1", shared_memory_bytes=GIB // 16) == []
    )
    assert problems_of(free_memory_bytes=GIB) == []
    assert problems_of(free_memory_bytes=2 * GIB, has_driver=True) == []


def test_an_uncertain_clock_and_unknown_gpus_accuse_nobody() -> None:
    assert problems_of(clock_offset_s=1.4, clock_error_s=0.5) == []
    assert problems_of(gpus=[dict.fromkeys(IDLE_GPU)]) == []


def test_a_rank_on_a_slice_of_each_gpu_is_fine_and_counters_of_slices_accuse_nobody() -> None:
    sliced = IDLE_GPU | {"slices": 2, "processes": 3, "used_bytes": 9 * GIB, "utilization": 0.5}
    assert problems_of(ray_gpus=2, gpus=[sliced, IDLE_GPU]) == []


def test_a_silent_host_is_a_problem() -> None:
    silent = {"node_id": "c3", "node": "c3", "error": "no answer in 120 s; restart it"}
    assert find_host_problems([silent, OTHER]) == ["c3: no answer in 120 s; restart it"]
