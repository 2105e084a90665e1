"""Rows of made-up nodes, as the doctor examines them."""

from __future__ import annotations

from typing import Any

from dtsweep.doctor.examine import Row, compare_with_peak

HERE = {
    "python_version": "3.11.9",
    "dtsweep_version": "0.1.0",
    "torch_version": "2.13.0",
    "ray_version": "2.60.0",
}


def examined_gpu(**changes: Any) -> Row:
    healthy = {
        "gpu": 0,
        "pci_bus_id": "0000:1b:00.0",
        "device": "NVIDIA H100 80GB HBM3",
        "rates": {"bf16": compare_with_peak(742e12, 989e12)},
        "moved_bytes_per_s": 2.9e12,
    }
    return healthy | changes


def gpu_row(**changes: Any) -> Row:
    healthy = {
        "node_id": "a1",
        "node": "gpu-1",
        "device": "NVIDIA H100 80GB HBM3",
        "threads": 1,
        "is_gpu": True,
        "misses_gpu": False,
        "rates": {
            "fp32": compare_with_peak(50e12, 67e12),
            "bf16": compare_with_peak(742e12, 989e12),
        },
        "nvml": True,
        "rapl": False,
        "clock_source": "tsc",
        "versions": HERE,
        "gpus": [],
        "unexamined": [],
    }
    return healthy | changes


def cpu_row(**changes: Any) -> Row:
    cpu = {
        "device": "Xeon",
        "is_gpu": False,
        "nvml": None,
        "rates": {"fp32": compare_with_peak(0.1e12, None)},
        "node": "cpu-1",
    }
    return gpu_row(**(cpu | changes))


def host_row(**changes: Any) -> Row:
    healthy = {
        "node_id": "a1",
        "node": "gpu-1",
        "has_driver": False,
        "has_ranks": True,
        "object_store_bytes": 2 * 2**30,
        "versions": HERE,
        "free_memory_bytes": 60 * 2**30,
        "shared_memory_bytes": 8 * 2**30,
        "disks": {"/scratch": {"total_bytes": 100 * 2**30, "free_bytes": 50 * 2**30}},
        "gpus": None,
        "others_cores": 0.1,
        "cores": 8,
        "clock_offset_s": 0.002,
        "clock_error_s": 0.001,
    }
    return healthy | changes


IDLE_GPU = {
    "used_bytes": 2**20,
    "utilization": 0.0,
    "processes": 0,
    "memory_errors": 0,
}
