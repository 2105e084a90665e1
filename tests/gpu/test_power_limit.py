"""The power limit of a real GPU: set, enforced and given back, or refused without rights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dtsweep.hardware import power_limit
from dtsweep.hardware.nvml import find_gpu
from dtsweep.hardware.power_limit import PowerLimitError, power_limited

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="needs a CUDA GPU, and this machine has none"
    ),
]


def test_a_limit_is_enforced_and_given_back_or_refused_for_a_reason_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power_limit, "FOLDER", tmp_path)
    gpu = find_gpu(torch.cuda.get_device_properties(0).uuid)
    limits = gpu and gpu.ask("nvmlDeviceGetPowerManagementLimitConstraints")
    if gpu is None or limits is None:
        pytest.skip("NVML tells no power limits of this device")
    before = gpu.ask("nvmlDeviceGetPowerManagementLimit")
    watts = (limits[0] + limits[1]) // 2000
    try:
        with power_limited(gpu, watts):
            assert abs(gpu.ask("nvmlDeviceGetEnforcedPowerLimit") - 1000 * watts) <= 1000
    except PowerLimitError as error:
        assert "leave power_limit out" in str(error)
    assert gpu.ask("nvmlDeviceGetPowerManagementLimit") == before
