"""What a host has left, in places that a test can arrange."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtsweep.hardware.readiness import (
    disk_bytes,
    free_memory_bytes,
    gpus,
    shared_memory_bytes,
)
from tests.stand_in_nvml import MissingNvml, StandInNvml


@pytest.mark.parametrize(
    ("folder", "limit", "used", "prefix"),
    [(".", "max", "current", ""), ("memory", "limit_in_bytes", "usage_in_bytes", "total_")],
)
def test_free_memory_of_a_container_is_by_its_limit_without_the_files_that_it_read(
    tmp_path: Path, folder: str, limit: str, used: str, prefix: str
) -> None:
    assert free_memory_bytes(tmp_path) > 2**20
    group = tmp_path / folder
    group.mkdir(exist_ok=True)
    (group / f"memory.{limit}").write_text("3000000\n")
    (group / f"memory.{used}").write_text("2900000\n")
    files = {f"{prefix}active_file": 200000, f"{prefix}inactive_file": 700000}
    stat = {**files, "inactive_file": 700000, "anon": 1}
    (group / "memory.stat").write_text("".join(f"{name} {count}\n" for name, count in stat.items()))
    assert free_memory_bytes(tmp_path) == 1_000_000
    (group / f"memory.{limit}").write_text("max\n" if limit == "max" else "9223372036854771712\n")
    assert free_memory_bytes(tmp_path) > 2**20
    (group / f"memory.{limit}").write_text("1000000\n")
    assert free_memory_bytes(tmp_path) == 0


def test_this_host_has_a_disk(tmp_path: Path) -> None:
    assert disk_bytes(tmp_path)["total_bytes"] >= disk_bytes(tmp_path)["free_bytes"] > 0
    assert shared_memory_bytes(tmp_path / "none") is None


def test_all_gpus_of_a_host_are_told_with_what_is_unknown() -> None:
    busy = StandInNvml(
        devices=2,
        pids=[1, 2, 3, 4],
        names={4: "/usr/bin/nvidia-cuda-mps-server"},
        unsupported=["nvmlDeviceGetTotalEccErrors"],
    )
    found = gpus(nvml=busy)
    assert found is not None
    assert len(found) == 2
    assert found[0]["processes"] == 3
    assert found[0]["memory_errors"] is None
    assert gpus(nvml=MissingNvml()) is None


def test_the_use_of_a_gpu_in_slices_is_unknown() -> None:
    found = gpus(nvml=StandInNvml(mig=1, slices=2, unsupported=("nvmlDeviceGetTotalEccErrors",)))
    assert found is not None
    assert set(found[0].values()) == {None}
