"""What the doctor says of a cluster: of rows made by hand without Ray, and of a private Ray."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dtsweep.doctor.doctor import Diagnosis, examine, node_cells, print_diagnosis, problems, rate, rate_cells
from dtsweep.provenance import versions
from tests.conftest import Command

HERE = {"python_version": "3.11.9", "dtsweep_version": "0.1.0", "torch_version": "2.13.0", "ray_version": "2.60.0"}


def gpu_row(**changes: Any) -> dict[str, Any]:
    healthy = {
        "node_id": "a1",
        "node": "gpu-1",
        "device": "NVIDIA H100 80GB HBM3",
        "threads": 1,
        "is_gpu": True,
        "misses_gpu": False,
        "rates": {"fp32": rate(50e12, 67e12), "bf16": rate(742e12, 989e12)},
        "nvml": True,
        "rapl": False,
        "clock_source": "tsc",
        "versions": HERE,
    }
    return healthy | changes


def cpu_row(**changes: Any) -> dict[str, Any]:
    cpu = {"device": "Xeon", "is_gpu": False, "nvml": None, "rates": {"fp32": rate(0.1e12, None)}, "node": "cpu-1"}
    return gpu_row(**(cpu | changes))


def test_healthy_nodes_have_no_problems() -> None:
    assert problems([gpu_row(), gpu_row(node="gpu-2"), cpu_row()], here=HERE) == []


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
            "gpu-1: NVML gives no energy; make libnvidia-ml visible (in containers NVIDIA_DRIVER_CAPABILITIES)",
        ),
        ({"clock_source": "hpet"}, "gpu-1: clock source hpet is slow to read; boot with clocksource=tsc"),
        (
            {"rates": {"bf16": rate(247.25e12, 989e12)}},
            "gpu-1: bf16 reaches 25% of the data sheet's peak; look for other jobs, heat and power limits",
        ),
    ],
)
def test_a_problem_names_the_node_and_the_next_step(changes: dict[str, Any], problem: str) -> None:
    assert problems([gpu_row(**changes), cpu_row()], here=HERE) == [problem]


def test_builds_and_patch_levels_may_differ_and_what_travels_with_the_job_has_no_version() -> None:
    there = {"python_version": "3.11.2", "torch_version": "2.13.1+cu126", "ray_version": "2.60.0"}
    assert problems([gpu_row(versions=there)], here=HERE) == []


def test_a_node_is_compared_with_the_fastest_of_its_kind_alone() -> None:
    half = {"fp32": rate(0.05e12, None)}
    fast, slow = cpu_row(), cpu_row(node="cpu-2", rates=half)
    (problem,) = problems([fast, slow, gpu_row()], here=HERE)
    assert problem.startswith("cpu-2: fp32 reaches 50% of what the fastest node with this device does")
    assert problems([fast, slow | {"device": "Atom"}], here=HERE) == []
    assert problems([fast | {"threads": 2}, slow], here=HERE) == []


def test_a_node_that_gave_no_answer_is_a_problem_and_so_is_a_cluster_without_nodes() -> None:
    silent = {"node_id": "b2", "node": "b2", "error": "no answer in 120 s; restart it"}
    assert problems([silent, gpu_row()], here=HERE) == ["b2: no answer in 120 s; restart it"]
    (problem,) = problems([], here=HERE)
    assert problem.startswith("no node has CPUs or GPUs: add a worker node")


def test_cells_say_unknown_where_nothing_is_known() -> None:
    cells = rate_cells([gpu_row(), cpu_row()])
    assert list(cells.values()) == [
        ["gpu-1", "gpu-1", "cpu-1"],
        ["NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3", "Xeon × 1"],
        ["fp32", "bf16", "fp32"],
        ["50.0", "742", "0.100"],
        ["67.0", "989", "unknown"],
        ["75%", "75%", ""],
    ]
    rows = node_cells([gpu_row(), cpu_row(clock_source=None, versions={})])
    assert rows["NVML"] == ["yes", ""]
    assert rows["clock"] == ["tsc", "unknown"]
    assert rows["torch"] == ["2.13.0", ""]


def test_the_diagnosis_is_printed_with_its_problems(capsys: pytest.CaptureFixture[str]) -> None:
    silent = {"node_id": "b2", "node": "b2", "error": "no [answer]; restart it"}
    print_diagnosis(
        Diagnosis(nodes=[gpu_row(), silent], problems=["b2: no [answer]; restart it"]), console=Console(width=120)
    )
    out = capsys.readouterr().out
    assert "NVIDIA H100 80GB HBM3" in out
    assert "- b2: no [answer]; restart it" in out
    print_diagnosis(Diagnosis(nodes=[gpu_row()], problems=[]), console=Console(width=120))
    assert "No problems found." in capsys.readouterr().out


def test_a_node_that_was_promised_a_gpu_but_has_none_says_so() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    row = examine(with_gpu=True)
    assert row["misses_gpu"]
    assert not row["is_gpu"]
    assert row["rates"].keys() == {"fp32", "bf16"}
    assert row["nvml"] is None
    assert row["versions"] == versions()


@pytest.mark.ray
def test_the_command_looks_at_every_node_of_the_cluster(tmp_path: Path, dtsweep_command: Command) -> None:
    done = dtsweep_command("doctor", "--address", "local", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "using a private Ray on this machine: 1 node" in done.stderr
    found = json.loads(done.stdout)
    assert found["problems"] == []
    (node,) = found["nodes"]
    assert node["versions"] == versions()
    assert all(speed["measured_flops_per_s"] > 1e8 for speed in node["rates"].values())
