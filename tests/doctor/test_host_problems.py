"""What is wrong with hosts, on made-up facts."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dtsweep.doctor.host_problems import find_host_problems
from tests.doctor.nodes import IDLE_GPU, host_row

OTHER = host_row(node="gpu-2", node_id="b2")
GIB = 2**30


def problems_of(**changes: Any) -> list[str]:
    return find_host_problems([host_row(**changes), OTHER])


def disk(total_gib: int, free_gib: int) -> dict[str, Any]:
    sizes = {"total_bytes": total_gib * GIB, "free_bytes": free_gib * GIB}
    return {"disks": {"/scratch": sizes}}


def gpus(*changes: dict[str, Any]) -> dict[str, Any]:
    return {"gpus": [IDLE_GPU | one for one in changes]}


BUSY = {"processes": 2, "used_bytes": 9 * GIB, "utilization": 0.5}


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
            gpus({}, BUSY),
            "GPU 1 is not idle (2 processes, 9.0 GiB in use, busy for 50% of the time); wait for",
        ),
        (gpus({"memory_errors": 3}), "GPU 0 has 3 uncorrected memory errors; take it"),
    ],
)
def test_a_problem_names_the_node_and_the_next_step(changes: dict[str, Any], problem: str) -> None:
    (found,) = problems_of(**changes)
    assert re.match(re.escape(f"gpu-1: {problem}").replace(r"\.\*", ".*"), found), found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        gpus({}),
        {"gpus": [dict.fromkeys(IDLE_GPU)]},
        {"clock_offset_s": 1.4, "clock_error_s": 0.5},
        {"others_cores": None, "cores": None},
        {"others_cores": 1.1, "has_ranks": False},
        {"has_ranks": False, "shared_memory_bytes": GIB // 16},
        {"free_memory_bytes": GIB},
        {"free_memory_bytes": 2 * GIB, "has_driver": True},
    ],
)
def test_what_is_healthy_unknown_or_does_not_matter_here_is_no_problem(
    changes: dict[str, Any],
) -> None:
    assert problems_of(**changes) == []


def test_silence_is_a_problem() -> None:
    silent = {"node_id": "c3", "node": "c3", "error": "no answer in 120 s; restart it"}
    assert find_host_problems([silent, OTHER]) == ["c3: no answer in 120 s; restart it"]
