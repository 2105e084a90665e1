"""Process-wide settings of torch are given back, one by one and all at once."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from dtsweep.hardware.backend_flags import backend_flags_kept, put_flags, read_flags

CHANGES = """
torch.use_deterministic_algorithms(True)
torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cuda.enable_flash_sdp(False)
torch.backends.cuda.enable_mem_efficient_sdp(False)
torch.backends.cuda.enable_math_sdp(False)
torch.backends.cuda.enable_cudnn_sdp(False)
torch.set_num_threads(torch.get_num_threads() + 1)
torch.set_default_dtype(torch.float64)
torch.set_default_device("meta")
torch.set_float32_matmul_precision("medium")
torch.backends.cuda.matmul.fp32_precision = "tf32"
torch.backends.cudnn.conv.fp32_precision = "ieee"
torch.backends.cudnn.rnn.fp32_precision = "ieee"
torch.backends.fp32_precision = "ieee"
torch.backends.mkldnn.fp32_precision = "bf16"
torch.backends.mkldnn.matmul.fp32_precision = "bf16"
torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
torch.backends.cudnn.enabled = False
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.deterministic = True
torch.backends.cudnn.allow_tf32 = False
torch.backends.mkldnn.enabled = False
torch.backends.mkldnn.deterministic = True
torch.set_grad_enabled(False)
torch.autograd.set_detect_anomaly(True)
gc.disable()
gc.set_threshold(7)
"""


def make(change: str) -> None:
    exec(change, {"torch": torch, "gc": gc})


@pytest.fixture(autouse=True)
def _as_it_was() -> Any:
    """So that a failure here costs no other test."""
    before = read_flags()
    yield
    put_flags(before)


@pytest.mark.parametrize("change", CHANGES.strip().splitlines())
def test_a_setting_is_given_back(change: str) -> None:
    before = read_flags()
    with backend_flags_kept():
        make(change)
        assert read_flags() != before
    assert read_flags() == before


def test_all_settings_are_given_back_in_whatever_order_they_were_made() -> None:
    before, others = read_flags(), CHANGES.strip().splitlines()
    for changes in (others, others[::-1]):
        with pytest.raises(ValueError, match="in the middle"), backend_flags_kept():
            for change in changes:
                make(change)
            raise ValueError("in the middle")
        assert read_flags() == before


def test_what_nobody_sets_is_not_touched() -> None:
    with backend_flags_kept():
        pass
    # A default device, were it the CPU itself, would take part in every call.
    assert getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None) is None
