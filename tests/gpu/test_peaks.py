"""The measured matrix product on a GPU, beside its data sheet."""

from __future__ import annotations

import pytest
import torch

from dtsweep.hardware.peaks import matmul_flops, matmul_rates, peak_flops
from dtsweep.sweep.precision import PRECISIONS


def device() -> torch.device:
    return torch.device("cuda", 0)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_ceiling_lies_below_the_data_sheet_and_not_far(precision: str) -> None:
    peak = peak_flops(torch.cuda.get_device_name(device()), precision)
    if peak is None:
        pytest.skip(f"no {precision} in the table for {torch.cuda.get_device_name(device())}")
    assert 0.4 * peak < matmul_flops(device(), precision) < 1.02 * peak


def test_narrower_numbers_are_faster() -> None:
    if torch.cuda.get_device_capability(device()) < (8, 0):
        pytest.skip("tf32 and bf16 come with compute capability 8.0")
    assert (
        1.3 * matmul_flops(device(), "fp32")
        < matmul_flops(device(), "tf32")
        < matmul_flops(device(), "bf16")
    )


def test_measuring_leaves_no_memory_and_no_flag_behind() -> None:
    matmul_rates.cache_clear()
    before = torch.cuda.memory_allocated(device())
    matmul_flops(device(), "tf32")
    assert torch.cuda.memory_allocated(device()) - before < 2**26  # cuBLAS keeps a workspace
    assert torch.get_float32_matmul_precision() == "highest"
