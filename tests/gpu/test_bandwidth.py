"""What an operation costs on a GPU that hardly computes."""

from __future__ import annotations

import torch

from dtsweep.hardware.bandwidth import operation_rates


def test_large_tensors_move_at_the_speed_of_device_memory() -> None:
    rates = operation_rates(torch.device("cuda", 0))
    # From a T4's 0.3 TB/s to a B300's 8 TB/s.
    assert 1e11 < rates.peak_bytes_per_s < 1e13
    assert 1e-7 < rates.launch_s < 1e-3
