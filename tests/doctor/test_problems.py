from __future__ import annotations

from typing import Any

import pytest

from dtsweep.doctor.examine import Row, compare_with_peak
from dtsweep.doctor.problems import find_problems
from tests.doctor.nodes import HERE, cpu_row, examined_gpu, gpu_row


def problems_of(*rows: Row) -> list[str]:
    return find_problems(rows, driver_versions=HERE)


def test_healthy_nodes_have_no_problems() -> None:
    assert problems_of(gpu_row(), gpu_row(node="gpu-2"), cpu_row()) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"versions": HERE | {"torch_version": "2.11.0"}},
            "gpu-1: torch 2.11.0, but 2.13.0 where dtsweep runs; install the same on all nodes",
        ),
        (
            {"misses_gpu": True},
            "gpu-1: Ray has a GPU that torch 2.13.0 can't use; install its CUDA or ROCm build",
        ),
        (
            {"nvml": False},
            "gpu-1: NVML gives no energy; make libnvidia-ml visible "
            "(in containers NVIDIA_DRIVER_CAPABILITIES)",
        ),
        (
            {"clock_source": "hpet"},
            "gpu-1: clock source hpet is slow to read; boot with clocksource=tsc",
        ),
        (
            {"rates": {"bf16": compare_with_peak(247.25e12, 989e12)}},
            "gpu-1: bf16 reaches 25% of the data sheet's peak; "
            "look for other jobs, heat and power limits",
        ),
    ],
)
def test_a_problem_names_the_node_and_the_next_step(changes: dict[str, Any], problem: str) -> None:
    assert problems_of(gpu_row(**changes), cpu_row()) == [problem]


def test_builds_and_patch_levels_may_differ_and_what_travels_with_the_job_has_no_version() -> None:
    there = {"python_version": "3.11.2", "torch_version": "2.13.1+cu126", "ray_version": "2.60.0"}
    assert problems_of(gpu_row(versions=there)) == []


def test_a_node_is_compared_with_the_fastest_of_its_kind_alone() -> None:
    half = {"fp32": compare_with_peak(0.05e12, None)}
    fast, slow = cpu_row(), cpu_row(node="cpu-2", rates=half)
    (problem,) = problems_of(fast, slow, gpu_row())
    assert problem.startswith("cpu-2: fp32 reaches 50% of what the fastest node with this device")
    assert problems_of(fast, slow | {"device": "Atom"}) == []
    assert problems_of(fast | {"threads": 2}, slow) == []


def test_nodes_and_gpus_without_an_answer_and_a_cluster_without_nodes_are_problems() -> None:
    silent = {"node_id": "b2", "node": "b2", "error": "no answer in 120 s; restart it"}
    assert problems_of(silent, gpu_row()) == ["b2: no answer in 120 s; restart it"]
    unexamined = "1 of 2 GPUs were not examined: no answer in 120 s"
    assert problems_of(gpu_row(unexamined=[unexamined])) == [f"gpu-1: {unexamined}"]
    (problem,) = problems_of()
    assert problem.startswith("no node has CPUs or GPUs: add a worker node")


def gpus_with(rates: list[float], **changes: Any) -> list[Row]:
    """GPUs of a node with these rates of products in TFLOP/s."""
    return [
        examined_gpu(gpu=index, rates={"bf16": compare_with_peak(rate * 1e12, 989e12)}, **changes)
        for index, rate in enumerate(rates)
    ]


def test_a_gpu_below_the_median_of_its_model_in_its_node_is_named() -> None:
    (problem,) = problems_of(gpu_row(gpus=gpus_with([740, 742, 741, 668])))
    assert problem.startswith("gpu-1: GPU 3: bf16 reaches 90% of the median of this node's GPUs; ")
    assert "-i 3)" in problem
    assert problems_of(gpu_row(gpus=gpus_with([740, 742, 741, 710]))) == []
    others = gpus_with([60, 61], device="NVIDIA A10")
    assert problems_of(gpu_row(gpus=[*gpus_with([740, 741]), *others])) == []


def test_slow_memory_of_a_gpu_is_named() -> None:
    gpus = gpus_with([740] * 4)
    gpus[2] |= {"moved_bytes_per_s": 2.0e12}
    (slow,) = problems_of(gpu_row(gpus=gpus))
    assert slow.startswith("gpu-1: GPU 2: memory reaches 69% of the median")
