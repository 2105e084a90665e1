"""Telemetry of a real GPU: what NVML tells of it can't be tried without one."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pytest
import torch

from dtsweep.hardware.fingerprint import fingerprint
from dtsweep.hardware.nvml import find_gpu
from dtsweep.hardware.telemetry import Telemetry


def busy_window(seconds: float) -> tuple[dict[str, Any], Telemetry]:
    """Multiply matrices for this long."""
    device = torch.device("cuda", 0)
    factor = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
    factor @ factor
    torch.cuda.synchronize()
    telemetry = Telemetry(device)
    telemetry.start()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for _ in range(50):
            factor @ factor
        torch.cuda.synchronize()
    return telemetry.stop(), telemetry


def test_the_device_is_found_by_its_uuid_and_nvml_agrees_with_torch() -> None:
    properties = torch.cuda.get_device_properties(0)
    gpu = find_gpu(properties.uuid)
    if gpu is None:
        pytest.skip("NVML does not show this device (a slice of one, or a container without NVML)")
    assert gpu.ask("nvmlDeviceGetName") == properties.name


def test_a_busy_window_has_utilization_memory_clock_and_energy() -> None:
    columns, _ = busy_window(6)
    assert columns["device_utilization"] > 0.8
    assert columns["device_memory_used_bytes"] >= 4096 * 4096 * 2
    assert columns["sm_clock_hz"] > 1e8
    assert columns["device_errors"] in (None, [])
    assert 20 < columns["temperature_celsius"] < 110
    if columns["energy_j"] is None:
        pytest.skip("this device has no energy counter")
    assert 30 < columns["power_w"] < 2000
    assert columns["energy_j"] == pytest.approx(columns["power_w"] * 6, rel=0.05)
    assert "window_short" not in columns["telemetry_flags"]


def test_our_own_process_is_no_other() -> None:
    columns, _ = busy_window(0.1)
    gpu = find_gpu(torch.cuda.get_device_properties(0).uuid)
    assert gpu is not None
    shown = {process.pid for process in gpu.ask("nvmlDeviceGetComputeRunningProcesses_v3") or ()}
    if shown <= {os.getpid()}:
        assert not columns["other_processes"]
        assert "shared_gpu" not in columns["telemetry_flags"]
    else:
        assert columns["other_processes"] == len(shown) - 1


def test_a_reading_takes_less_than_a_500th_of_the_time_between_two() -> None:
    _, telemetry = busy_window(0.1)
    seconds = []
    for _ in range(50):
        began = time.perf_counter()
        telemetry.read()
        seconds.append(time.perf_counter() - began)
    assert np.median(seconds) < 0.002 * 0.5


def test_the_machine_has_driver_libraries_and_settings() -> None:
    machine = fingerprint(torch.device("cuda", 0))["machine"]
    assert {"driver", "cuda", "cudnn", "nccl", "gpu"} <= set(machine)
    assert machine["gpu"]["power_limit_w"] > 0
